"""Masks of words: a fixed count, all sub-tokens of each, and the word as their label."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.language.masked_language import Masked, Masking, Words, mask_words, masked_count

MASK, ORDINARY, LENGTH = 99, np.arange(10, 20), 24

sizes = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=7), min_size=1, max_size=4)


def spans_of(pieces: list[int]) -> Words:
    """Words of so many sub-tokens each, from position 1, every second one with a token between."""
    starts, at = [], 1
    for number, size in enumerate(pieces):
        starts.append((at, at + size, 1000 + number))
        at += size + number % 2
    return np.array(starts, np.int32)


def masked(words: list[Words], **options: object) -> Masked:
    ids = np.full((len(words), LENGTH), 5)
    drawn = {name: options.pop(name, default) for name, default in (("seed", 3), ("step", 1))}
    masking = Masking(np.arange(len(words)), mask_id=MASK, ordinary=ORDINARY, **drawn)  # type: ignore[arg-type]
    return mask_words(ids, words, masking, **{"share": 0.15, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(("words", "count"), [(1, 1), (3, 1), (6, 1), (13, 2), (20, 3), (100, 15)])
def test_masked_count_is_rounded_share_and_at_least_one(words: int, count: int) -> None:
    assert masked_count(words, 0.15) == count


@given(sizes, st.floats(0.05, 0.9), st.integers(0, 10**9))
def test_chosen_words_are_masked_whole_with_labels(pieces: list[list[int]], share: float, seed: int) -> None:
    words = [spans_of(of_text) for of_text in pieces]
    found = masked(words, share=share, seed=seed)
    by_place = dict(zip(found.places.tolist(), found.labels.tolist(), strict=True))
    for text, spans in enumerate(words):
        whole = [
            all(by_place.get(text * LENGTH + place) == term for place in range(first, last))
            for first, last, term in spans.tolist()
        ]
        touched = {
            number
            for number, (first, last, _) in enumerate(spans.tolist())
            if any(text * LENGTH + place in by_place for place in range(first, last))
        }
        assert touched == {number for number, one in enumerate(whole) if one}
        assert len(touched) == masked_count(len(spans), share)
    assert len(by_place) == len(found.places)
    changed = np.flatnonzero(found.input_ids.reshape(-1) != 5)
    assert set(changed.tolist()) <= set(by_place)


def test_sub_tokens_of_word_are_replaced_in_same_way_at_80_10_10() -> None:
    found = masked([spans_of([2] * 7)] * 3000, share=0.4)
    pairs = found.input_ids.reshape(-1)[found.places].reshape(-1, 2)
    fates = np.select([(pairs == MASK).all(axis=1), (pairs == 5).all(axis=1)], [0, 1], 2)
    assert not ((pairs == MASK).any(axis=1) & (fates != 0)).any()
    for fate, share in enumerate((0.8, 0.1, 0.1)):
        assert (fates == fate).mean() == pytest.approx(share, abs=0.02)


def test_labelled_first_labels_only_first_sub_token() -> None:
    words = [spans_of([3, 2, 3])]
    every, first = masked(words, share=0.9), masked(words, share=0.9, labelled="first")
    assert (every.input_ids == first.input_ids).all()
    assert set(first.places.tolist()) == {1, 4, 7} & set(every.places.tolist())
    assert len(first.places) == 3


def test_validation_always_masks_first_or_later_sub_tokens() -> None:
    words = [spans_of([3]), spans_of([1])]
    first, later = masked(words, masked="first"), masked(words, masked="later")
    assert first.places.tolist() == [1, LENGTH + 1]
    assert later.places.tolist() == [2, 3]
    assert later.labels.tolist() == [1000, 1000]
    assert np.flatnonzero(later.input_ids == MASK).tolist() == [2, 3]
    labelled = masked(words, masked="later", labelled="first")
    assert labelled.places.tolist() == [2]
    assert (labelled.input_ids == later.input_ids).all()


def test_text_without_words_has_no_mask() -> None:
    found = masked([np.empty((0, 3), np.int32)])
    assert len(found.places) == 0
    assert (found.input_ids == 5).all()
