from collections.abc import Iterator

import pytest

from lsr_prod.inference.terms.surfaces import cased_terms, notation_of
from lsr_prod.inference.terms.words import lowercases
from lsr_prod.training.vocabulary.target import target_terms, train_tokenizer

TEXTS = ["Naïve T-cells and Naïve mice", "the cells of the mice, the cells"] * 50


@pytest.mark.parametrize(("model", "notation"), [("word_piece", "word_piece"), ("bpe", "byte_level")])
def test_tokenizer_is_lowercase_without_accents_and_of_given_size(model: str, notation: str):
    tokenizer = train_tokenizer(iter(TEXTS), model=model, size=320, min_count=2)  # type: ignore[arg-type]
    terms = target_terms(tokenizer)
    assert len(terms) <= 320
    assert notation_of(terms) == notation
    assert not any(cased_terms(terms))
    assert lowercases(tokenizer.backend_tokenizer)
    ids = tokenizer("NAÏVE cells")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids[0]) == "[CLS]"
    assert tokenizer.convert_ids_to_tokens(ids[-1]) == "[SEP]"
    assert ids == tokenizer("naive CELLS")["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.pad_token_id == 0


def test_frequent_word_at_start_of_text_is_one_token():
    tokenizer = train_tokenizer(TEXTS, model="bpe", size=400, min_count=2)
    assert tokenizer.tokenize("cells cells") == ["Ġcells", "Ġcells"]


def test_texts_are_read_once_as_iterator():
    read = 0

    def stream() -> Iterator[str]:
        nonlocal read
        for text in TEXTS:
            read += 1
            yield text

    train_tokenizer(stream(), model="word_piece", size=300, min_count=2)
    assert read == len(TEXTS)
