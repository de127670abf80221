from pathlib import Path

import numpy as np
import pytest

from lsr_prod.inference.terms.surfaces import cased_terms, uncased_groups
from tests.inference.terms.test_surfaces import vocabulary

NOTATIONS = {
    "word_piece": ["[CLS]", "apple", "Apple", "##S", "##x", "Paris", "PARIS", "Ünal", "1a"],
    "byte_level": ["<|IM|>", "Ġapple", "ĠApple", "S", "x", "ĠParis", "ĠPARIS", "ĠÃľnal", "Ġ1a"],
    "sentence_piece": ["<S>", "▁apple", "▁Apple", "S", "x", "▁Paris", "▁PARIS", "▁Ünal", "▁1a"],
}
LOWERED = {
    "word_piece": ["[CLS]", "apple", "##s", "##x", "paris", "ünal", "1a"],
    "byte_level": ["<|IM|>", "Ġapple", "s", "x", "Ġparis", "ĠÃ¼nal", "Ġ1a"],
    "sentence_piece": ["<S>", "▁apple", "s", "x", "▁paris", "▁ünal", "▁1a"],
}


@pytest.mark.parametrize("notation", NOTATIONS)
def test_cased_terms_are_detected_by_letters_in_every_notation(notation: str):
    assert cased_terms(NOTATIONS[notation]) == [False, False, True, True, False, True, True, True, False]


@pytest.mark.parametrize("notation", NOTATIONS)
def test_cased_terms_are_dropped_or_folded_if_no_lowercase_form_exists(notation: str):
    groups = uncased_groups(NOTATIONS[notation])
    assert groups.rows == [0, 1, 3, 4, 5, 6, 7, 8]  # Apple is dropped because apple exists
    assert groups.groups == [0, 1, 2, 3, 4, 4, 5, 6]  # Paris and PARIS are one term
    assert groups.terms == LOWERED[notation]


def test_word_and_word_piece_with_same_spelling_stay_separate():
    groups = uncased_groups(["##s", "S", "##e"])
    assert groups.terms == ["##s", "s", "##e"]


def test_maltese_letter_is_not_taken_for_byte_level_marker():
    assert cased_terms(["Ġużeppi", "Ã©", *["##a"] * 9])[:2] == [True, True]


def test_uncased_vocabulary_is_unchanged(shared_data: Path):
    terms = vocabulary(shared_data, "bert-base-uncased-vocab.txt")
    groups = uncased_groups(terms)
    assert (groups.rows, groups.groups, groups.terms) == (list(range(len(terms))),) * 2 + (terms,)


def test_bert_cased_vocabulary_folds_to_unique_uncased_terms(shared_data: Path):
    terms = vocabulary(shared_data, "bert-base-cased-vocab.txt")
    is_cased = np.array(cased_terms(terms))
    groups = uncased_groups(terms)
    kept = np.zeros(len(terms), dtype=bool)
    kept[groups.rows] = True
    special = 5  # [PAD], [UNK], [CLS], [SEP] and [MASK] have capital letters but are not words
    assert (kept & is_cased).sum() == 4523 - special
    assert len(groups.terms) == len(set(groups.terms)) == len({t if t.startswith("[") else t.lower() for t in terms})
    assert not any(cased_terms(groups.terms))


def test_cased_terms_are_found_in_word_piece_vocabulary() -> None:
    vocabulary = [
        "[CLS]",
        "[PAD]",
        "apple",
        "Apple",
        "##ing",
        "##McD",
        "École",
        "école",
        "3",
        "<s>",
        "<",
        "[no token 9]",
    ]
    found = [term for term, cased in zip(vocabulary, cased_terms(vocabulary), strict=True) if cased]
    assert found == ["Apple", "##McD", "École"]


def test_cased_terms_are_found_in_byte_level_vocabulary() -> None:
    # The bytes of a space and of é are written as capital letters, but the text has none.
    vocabulary = ["Ġapple", "ĠApple", "cafÃ©", "CafÃ©", "Ġ", "Ċ", "<s>", "Ãī"]
    found = [term for term, cased in zip(vocabulary, cased_terms(vocabulary), strict=True) if cased]
    assert found == ["ĠApple", "CafÃ©", "Ãī"]  # the last one is É


def test_cased_terms_are_found_in_sentence_piece_vocabulary() -> None:
    assert cased_terms(["▁apple", "▁Apple", "pple"]) == [False, True, False]
