"""Tests of the comparison of hits with positives by text: parts, near copies, short texts, and sketches of texts."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.negatives.rules import SKETCH_SIZE, Fingerprint, has_same_words, is_own, words_of
from tests.training.negatives.conftest import TEXTS

LOCK = TEXTS["lock"]
GENERATOR = random.Random(0)
WORDS = ["".join(GENERATOR.choices(string.ascii_lowercase, k=6)) for _ in range(2000)]
LONG = " ".join(WORDS[:400])


def own(hit: str, *positives: str, query: str = "", share: float = 0.6, sketched: bool = False) -> bool:
    prints = [Fingerprint.of(text) for text in positives]
    if sketched:
        prints = [Fingerprint.from_sketch(one.sketch()) for one in prints]
    return is_own(hit, prints, frozenset(words_of(query)), share)


@pytest.mark.parametrize("sketched", [False, True])
@pytest.mark.parametrize(
    ("hit", "positive"),
    [
        (f"Locks and how to use them {LOCK}", LOCK),  # the title before the text
        (f"{LOCK} {TEXTS['queue']} {TEXTS['bind']} {TEXTS['gzip']}", LOCK),
        (LOCK, f"Locks: {LOCK}"),
        (LOCK.upper().replace(" ", "\n"), LOCK),
        ("".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in LOCK), LOCK),  # full width
        (LOCK.translate(str.maketrans("", "", ",.")), LOCK),
        (LOCK.replace("thread", "task", 1), LOCK),  # a near copy
        (
            "標題。" + "線程釋放它所持有的鎖，其他等待的線程可以繼續執行。",
            "線程釋放它所持有的鎖，其他等待的線程可以繼續執行。",
        ),
    ],
)
def test_hit_that_holds_or_nearly_repeats_the_positive_is_own(hit: str, positive: str, sketched: bool):
    assert own(hit, positive, sketched=sketched)


@pytest.mark.parametrize("words", [40, 100, 200])
def test_passage_of_the_positive_is_own(words: int):
    assert own(" ".join(WORDS[150 : 150 + words]), LONG)


def test_long_passages_of_a_sketched_positive_are_own():
    found = [own(" ".join(WORDS[start : start + 200]), LONG, sketched=True) for start in range(0, 201, 10)]
    assert sum(found) >= 0.9 * len(found)


@pytest.mark.parametrize("sketched", [False, True])
def test_other_documents_are_not_own(sketched: bool):
    names = [name for name in TEXTS if name not in ("lock-copy", "empty")]
    for name in names:
        assert [other for other in names if own(TEXTS[other], TEXTS[name], sketched=sketched)] == [name]


@pytest.mark.parametrize("sketched", [False, True])
@pytest.mark.parametrize(
    ("hit", "positive", "query", "expected"),
    [
        ("Yes.", "yes", "is the sky blue?", True),
        ("Is the sky blue? Yes", "yes", "is the sky blue", True),  # the title is the query
        ("Yes, but only where the air is clean", "yes", "is the sky blue?", False),
        ("Is the sea blue? Yes", "yes", "is the sky blue?", False),
        ("No", "yes", "is the sky blue?", False),
        ("Apollo 11: in July 1969", "In July 1969", "when did Apollo 11 land?", True),
        ("In July 1969 a large crowd met near the river to hear some music", "In July 1969", "when?", False),
        ("1969, in July", "In July 1969", "when?", False),
        ("東京", "東京", "日本の首都", True),
        ("東京タワーは高さ三百三十三メートル", "東京", "日本の首都", False),
        ("?!", "?!", "what?", False),  # without words; equal texts are found by their keys
    ],
)
def test_short_positive_is_compared_whole(hit: str, positive: str, query: str, expected: bool, sketched: bool):
    assert own(hit, positive, query=query, sketched=sketched) is expected


def test_common_phrase_does_not_make_a_short_hit_own_by_a_sketch():
    for start in range(0, 390, 10):
        assert not own(f"{' '.join(WORDS[start : start + 3])} {' '.join(WORDS[1000:1030])}", LONG, sketched=True)


def test_share_is_a_threshold_of_the_shorter_text():
    half = " ".join(WORDS[:50] + WORDS[1000:1050])  # 48 of its 98 shingles are in the positive
    assert own(half, LONG, share=0.48)
    assert not own(half, LONG, share=0.5)


TEXT = st.lists(st.sampled_from(WORDS[:30]), max_size=60).map(" ".join)


@given(TEXT, TEXT, TEXT)
def test_a_text_with_anything_around_is_own_at_every_share(text: str, before: str, after: str):
    hit = f"{before} {text} {after}"
    assert own(hit, text, share=1, query=f"{before} {after}") is bool(text)
    assert len(text.split()) < 8 or own(hit, text, share=1)
    assert len(text.split()) < 8 or own(hit, text, share=1, sketched=True)


@given(TEXT)
def test_sketch_has_a_fixed_size_and_is_whole_for_few_shingles(text: str):
    whole = Fingerprint.of(text)
    sketch = whole.sketch()
    assert len(sketch) == SKETCH_SIZE
    assert all(0 <= number < 2**32 for number in sketch)
    read = Fingerprint.from_sketch(sketch)
    assert read.words == whole.words
    assert read.hashes <= whole.hashes or not whole.hashes
    assert len(whole.hashes) >= SKETCH_SIZE - 1 or not whole.hashes or read == whole


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (LOCK, " ".join(reversed(LOCK.split())), True),
        (LOCK, f"{TEXTS['queue']} {LOCK}", True),
        (LOCK, TEXTS["queue"], False),
        ("yes", "yes it is", False),
        ("", "", False),
    ],
)
def test_same_words_in_any_order_are_suspicious(one: str, other: str, expected: bool):
    assert has_same_words(set(words_of(one)), set(words_of(other))) is expected
