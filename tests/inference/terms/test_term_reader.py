"""Reading the output terms of a text: tokens, uncased terms, and words."""

from dataclasses import replace

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.surfaces import uncased_groups
from lsr_prod.inference.terms.words import TermReader, split_words
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.formats.bundle_format import EncoderCard
from tests.model.tiny import VOCABULARY, tiny_tokenizer

TOKENIZER = tiny_tokenizer().backend_tokenizer.to_str()
IDS = {term: number for number, term in enumerate(VOCABULARY)}


def card(**fields: object) -> EncoderCard:
    return replace(EncoderCard("BertForMaskedLM", len(VOCABULARY), "0" * 64, query_encoder="idf"), **fields)


def test_query_terms_are_distinct_tokens_without_special_tokens():
    reader = TermReader(TOKENIZER, card(), VOCABULARY)
    assert reader.query("w3 w5 w3 nonsense [CLS] </s> w7") == ([IDS["w3"], IDS["w5"], IDS["w7"]], [])
    assert reader.query("") == ([], [])


def test_query_is_truncated_as_by_model_and_document_is_not():
    reader = TermReader(TOKENIZER, card(query_max_length=5), VOCABULARY)
    text = " ".join(f"w{i}" for i in range(1, 40, 2))
    assert reader.query(text).ids == [IDS["w1"], IDS["w3"], IDS["w5"]]  # two special tokens are counted
    assert reader.documents([text])[0].tolist() == sorted(IDS[word] for word in text.split())


def test_tokens_fold_into_uncased_terms():
    groups = uncased_groups(VOCABULARY)
    reader = TermReader(TOKENIZER, card(output_casing="uncased", vocabulary_size=len(groups.terms)), groups.terms)
    terms = [groups.terms[number] for number in reader.query("W4 w3 <unk>").ids]
    assert terms == ["w4", "w3"]  # there is only a cased token W4, and no cased w3


def test_unknown_words_are_returned_separately():
    words = ["w3", "lock", "."]
    reader = TermReader(TOKENIZER, card(output_vocabulary="words", vocabulary_size=3), words)
    assert reader.query("A Lock. w3, LOCK") == ([1, 2, 0], ["a", ","])
    assert [ids.tolist() for ids in reader.documents(["A lock. W3", "nothing here"])] == [[0, 1, 2], []]
    assert split_words("A Lock.") == ["a", "lock", "."]  # the output vocabulary was counted with the same splitting


def test_counting_in_pieces_equals_counting_at_once(monkeypatch):
    reader = TermReader(TOKENIZER, card(), VOCABULARY)
    texts = ["w1 w3 w1", "", "w3", "</s> <unk>", "w5 w3"]
    whole = reader.count(texts)
    monkeypatch.setattr("lsr_prod.inference.terms.words._CHARACTERS", 3)
    parts = reader.count(texts[3:], reader.count(iter(texts[:3])))
    for counts in (whole, parts):
        assert counts.documents == 3
        assert {VOCABULARY[i]: int(n) for i, n in enumerate(counts.frequencies) if n} == {"w1": 1, "w3": 3, "w5": 1}


@pytest.mark.parametrize("text", ["What's the weather in NY now?", "naïve café [MASK] ##ing"])
def test_lowercases_agrees_with_transformers(splade_tiny, text):
    encoder = SparseEncoder.load(splade_tiny, query_encoder="idf")
    reader = TermReader(encoder.tokenizer.backend_tokenizer.to_str(), encoder.card, encoder.vocabulary)
    ids = encoder.tokenizer(text, add_special_tokens=False)["input_ids"]
    wanted = list(dict.fromkeys(i for i in ids if i not in encoder.tokenizer.all_special_ids))
    assert reader.query(text).ids == wanted
    assert reader.documents([text])[0].tolist() == sorted(wanted)


def test_undecodable_bytes_are_not_lowercased():
    """A character of two bytes is two tokens, whose names are letters of byte-level BPE and not of the text."""
    letters = ["Ġ", *(f"Ġ{letter}" for letter in "abAB"), "Ð", "ð", "©", "É", "é", "Ñ", "ñ", "Ĩ", "ĩ"]
    backend = Tokenizer(BPE({name: number for number, name in enumerate(letters)}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=True)
    groups = uncased_groups(letters)
    reader = TermReader(
        backend.to_str(), card(output_casing="uncased", vocabulary_size=len(groups.terms)), groups.terms
    )
    tokens = [token for token in backend.encode("Ж Щ").tokens if token in letters]
    assert [groups.terms[number] for number in reader.query("Ж Щ").ids] == list(dict.fromkeys(tokens))


def test_tokens_of_another_tokenizer_are_rejected_as_words():
    with pytest.raises(ConfigError, match="query_encoder: the output terms are tokens of another tokenizer"):
        TermReader(TOKENIZER, card(output_vocabulary="words"), ["lock", "##ing", "##ed"])
