import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lsr_prod.inference.terms.words import lowercases, split_words, word_pieces
from lsr_prod.model import SparseEncoder


def fast(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def byte_level(add_prefix_space: bool = False) -> PreTrainedTokenizerFast:
    pieces = ["t", "h", "e", "Ġ", "th", "the", "Ġthe", "Ġt"]
    backend = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[("t", "h"), ("th", "e"), ("Ġ", "the")],
        )
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = decoders.ByteLevel()
    return fast(backend)


def sentence_piece() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -3.0), ("▁the", -1.0), ("the", -2.0)], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return fast(backend)


def test_words_are_lowercased_composed_and_split_from_punctuation():
    assert split_words("Hello, Wörld!") == ["hello", ",", "wörld", "!"]
    assert split_words(unicodedata.normalize("NFD", "한국어 검색")) == ["한국어", "검색"]
    assert split_words("検索\tПривет\x00") == ["検", "索", "привет"]
    assert split_words(" \n") == []


def test_words_are_spelled_by_lowercasing_tokenizer(splade_tiny: Path):
    tokenizer = SparseEncoder.load(splade_tiny).tokenizer
    assert split_words("Café", tokenizer) == ["cafe"]
    assert split_words("Café") == ["café"]


def test_words_are_lowercased_if_tokenizer_keeps_case():
    assert not lowercases(byte_level().backend_tokenizer)
    assert split_words("The", byte_level()) == ["the"]


@given(st.text(max_size=40))
def test_splitting_words_again_is_stable(text: str):
    words = split_words(text)
    again = split_words(" ".join(words))
    assert again == split_words(" ".join(again))
    assert all(word and not any(character.isspace() for character in word) for word in words)


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [(byte_level(), "Ġthe"), (byte_level(add_prefix_space=True), "Ġthe"), (sentence_piece(), "▁the")],
)
def test_word_is_tokenized_as_inside_text(tokenizer: PreTrainedTokenizerFast, expected: str):
    (pieces,) = word_pieces(["the"], tokenizer)
    assert tokenizer.convert_ids_to_tokens(pieces) == [expected]


def test_joined_word_pieces_equal_pieces_of_text(splade_tiny: Path):
    tokenizer = SparseEncoder.load(splade_tiny).tokenizer
    text = "Anti-inflammatory Effects of Naïve T-cells, in 1993"
    joined = [i for pieces in word_pieces(split_words(text, tokenizer), tokenizer) for i in pieces]
    assert joined == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_lowercasing_is_detected_in_nested_normalizers():
    backend = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Sequence([normalizers.Lowercase()])])
    assert lowercases(backend)
    backend.normalizer = normalizers.BertNormalizer(lowercase=False)
    assert not lowercases(backend)
