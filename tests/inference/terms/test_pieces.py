from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from lsr_prod.inference.terms.words import term_pieces
from lsr_prod.model import SparseEncoder
from lsr_prod.training.vocabulary.target import train_tokenizer
from tests.inference.terms.test_words import byte_level, sentence_piece


def spelt(terms: list[str], tokenizer: PreTrainedTokenizerFast) -> list[list[str]]:
    return [tokenizer.convert_ids_to_tokens(pieces) for pieces in term_pieces(terms, tokenizer)]


# The extra terms only make the notation of each vocabulary unambiguous.
WORD_PIECE = ["the", "##the", "[CLS]", "##xx", "a##"]
BYTE_LEVEL = ["Ġthe", "the", "<|end|>", "Ġth", "Ġa"]


def test_word_pieces_convert_to_byte_level_pieces():
    assert spelt(WORD_PIECE, byte_level())[:4] == [["Ġthe"], ["the"], [], []]


def test_word_pieces_convert_to_sentence_piece_pieces():
    assert spelt(WORD_PIECE, sentence_piece())[:3] == [["▁the"], ["the"], []]


def test_byte_level_terms_convert_to_word_pieces(splade_tiny: Path):
    tokenizer = SparseEncoder.load(splade_tiny).tokenizer
    terms = ["ĠHalloween", "ists", "ĠcentimÃ¨tres", "<|endoftext|>", "Ġ", "ĠÃ", "Ġdon", "'t"]
    found = spelt(terms, tokenizer)
    assert found[:4] == [["halloween"], ["##ists"], ["centimetre", "##s"], []] or found[2][0].startswith("cent")
    assert found[1] == ["##ists"]
    assert found[4:6] == [[], []]


@pytest.mark.parametrize("model", ["word_piece", "bpe"])
def test_trained_tokenizer_splits_terms_of_another_vocabulary(model: str):
    texts = ["the cats sat on the mats", "Cats and MATS and hats"] * 20
    tokenizer = train_tokenizer(texts, model=model, size=400, min_count=2)  # type: ignore[arg-type]
    (cats, inner) = spelt(["cats", "##ats"], tokenizer)
    assert "".join(cats).replace("##", "").lstrip("Ġ") == "cats"
    assert "".join(inner).replace("##", "") == "ats"
    assert not inner[0].startswith("Ġ")
