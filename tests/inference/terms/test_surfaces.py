import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.inference.terms.surfaces import Surface, Terms, align, notation_of, overlap_share, spell, surfaces

WORD_PIECE = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "the", "##s", "Paris", "é", "##"]
BYTE_LEVEL = ["<|endoftext|>", "Ġthe", "s", "ĠParis", "ĠÃ©", "Ã", "Ġ", "ĠthÃ©"]
SENTENCE_PIECE = ["<s>", "</s>", "▁the", "s", "▁Paris", "▁é", "<0x0A>", "▁"]


def vocabulary(folder: Path, name: str) -> list[str]:
    if name.endswith(".json"):
        return list(json.loads((folder / "vocabularies" / name).read_text(encoding="utf-8")))
    return (folder / "vocabularies" / name).read_text(encoding="utf-8").rstrip("\n").split("\n")


@pytest.mark.parametrize(
    ("terms", "expected"),
    [(WORD_PIECE, "word_piece"), (BYTE_LEVEL, "byte_level"), (SENTENCE_PIECE, "sentence_piece"), (["a"], "words")],
)
def test_notation_is_that_of_most_terms(terms: list[str], expected: str):
    assert notation_of(terms) == expected


def test_letter_that_is_marker_of_another_notation_is_kept():
    assert notation_of([*WORD_PIECE, "Ġ", "##ing", "##ed"]) == "word_piece"
    assert notation_of(["Ġobża", *(f"word{i}" for i in range(200))]) == "words"


def test_same_surface_form_is_found_in_every_notation():
    the, s, paris = Surface("the", "initial"), Surface("s", "inner"), Surface("Paris", "initial")
    for terms in (WORD_PIECE, BYTE_LEVEL, SENTENCE_PIECE):
        assert {the, s, paris, Surface("é", "initial")} <= set(surfaces(terms))
    assert surfaces(BYTE_LEVEL)[5] == Surface("Ã", "special")  # half of a character


@given(st.text(min_size=1, max_size=8), st.sampled_from(["initial", "inner"]))
def test_surface_form_survives_round_trip(text: str, place: str):
    surface = Surface(text, place)  # type: ignore[arg-type]
    for notation, terms in (("word_piece", WORD_PIECE), ("byte_level", BYTE_LEVEL), ("sentence_piece", SENTENCE_PIECE)):
        term = spell(surface, notation)  # type: ignore[arg-type]
        (*_, back) = surfaces([*terms, *terms, term])
        readable = back.place != "special" and not text.startswith(("##", "▁", " ")) and "\ufffd" not in text
        assert back == surface or not readable


def test_inner_surface_is_rejected_in_words_notation():
    with pytest.raises(ValueError, match="whole words only"):
        spell(Surface("s", "inner"), "words")


def test_align_matches_equal_terms_and_special_tokens_by_role():
    source = Terms(BYTE_LEVEL, {"begin": "<|endoftext|>", "end": "<|endoftext|>", "unknown": "<|endoftext|>"})
    target = Terms(WORD_PIECE, {"pad": "[PAD]", "begin": "[CLS]", "end": "[SEP]", "mask": "[MASK]"})
    #                                    PAD CLS SEP MASK the ##s Paris é  ##
    np.testing.assert_array_equal(align(source, target), [-1, 0, 0, -1, 1, 2, 3, 4, -1])
    assert overlap_share(align(source, target)) == pytest.approx(6 / 9)


def test_align_does_not_fold_case():
    aligned = align(Terms(["Paris", "##a", "##b"]), Terms(["paris", "##a", "##B"]))
    np.testing.assert_array_equal(aligned, [-1, 1, -1])


@pytest.mark.parametrize(
    ("name", "percent"), [("bert-base-cased-vocab.txt", 60.9), ("gpt2-encoder.json", 59.5)], ids=["bert_cased", "gpt2"]
)
def test_overlap_with_bert_uncased_has_known_percentage(shared_data: Path, name: str, percent: float):
    source = Terms(vocabulary(shared_data, name))
    target = Terms(vocabulary(shared_data, "bert-base-uncased-vocab.txt"))
    assert 100 * overlap_share(align(source, target)) == pytest.approx(percent, abs=0.1)
