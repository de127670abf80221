"""BM25 over word pieces against the formula, document by document."""

import math
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from benchmarks.train.word_piece_bm25 import K1, B, WordPieceBm25

DOCUMENTS = {"a": "one two two", "b": "two three", "c": "one one one one", "d": "three"}


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    one = Tokenizer(models.WordLevel({"[UNK]": 0, "one": 1, "two": 2, "three": 3}, unk_token="[UNK]"))
    one.pre_tokenizer = pre_tokenizers.Whitespace()
    one.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def expected(query: str, document: str) -> float:
    texts = [text.split() for text in DOCUMENTS.values()]
    mean, words, score = sum(map(len, texts)) / len(texts), DOCUMENTS[document].split(), 0.0
    for word in query.split():
        holding, count = sum(word in text for text in texts), words.count(word)
        idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
        score += idf * count * (K1 + 1) / (count + K1 * (1 - B + B * len(words) / mean))
    return score


@pytest.mark.parametrize("query", ["one", "two three", "two two one"])
def test_scores_are_those_of_the_formula(tokenizer: Path, query: str):
    found = WordPieceBm25(tokenizer, DOCUMENTS).answer(query)
    assert dict(found) == pytest.approx({name: s for name in DOCUMENTS if (s := expected(query, name)) > 0})
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


def test_documents_without_a_piece_of_the_query_are_no_hits(tokenizer: Path):
    assert [name for name, _ in WordPieceBm25(tokenizer, DOCUMENTS).answer("three", k=1)] == ["d"]
    assert len(WordPieceBm25(tokenizer, DOCUMENTS).answer("three")) == 2
