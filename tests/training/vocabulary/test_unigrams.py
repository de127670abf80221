import json
from collections import Counter
from pathlib import Path

import pytest

from lsr_prod.errors import ConfigError, QuarantineOverflowError
from lsr_prod.inference.terms.words import split_words
from lsr_prod.model import SparseEncoder
from lsr_prod.training.vocabulary import unigrams
from lsr_prod.training.vocabulary.target import train_tokenizer
from lsr_prod.training.vocabulary.unigrams import WordCount, count_words
from tests.training.vocabulary.corpora import write_texts

pytestmark = pytest.mark.usefixtures("ray_local")
KOREAN = ["한국어 검색 엔진", "한국어 문서, 한국어 질문", "검색 질문"]


def plain_count(texts: list[str], tokenizer: object, size: int, min_count: int) -> list[WordCount]:
    counts = Counter(word for text in texts for word in split_words(text, tokenizer))  # type: ignore[arg-type]
    found = [WordCount(word, count) for word, count in counts.items() if count >= min_count]
    return sorted(found, key=lambda entry: (-entry.count, entry.word))[:size]


@pytest.mark.long
def test_korean_words_equal_counts_one_by_one(tmp_path: Path):
    tokenizer = train_tokenizer(KOREAN, model="bpe", size=400, min_count=1)
    data = write_texts(tmp_path, KOREAN, files=3)
    found = count_words(data, tokenizer, size=4, min_count=2, options={})
    assert found == plain_count(KOREAN, tokenizer, 4, 2)
    assert found[0].count == 3


@pytest.mark.long
def test_counts_of_real_texts_in_many_slices(
    tmp_path: Path, shared_data: Path, splade_tiny: Path, monkeypatch: pytest.MonkeyPatch
):
    with (shared_data / "scifact" / "corpus.jsonl").open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(300), strict=False)]
    tokenizer = SparseEncoder.load(splade_tiny).tokenizer
    data = write_texts(tmp_path, texts, files=2)
    whole = unigrams.cut_slices
    monkeypatch.setattr(unigrams, "cut_slices", lambda data, options: whole(data, options, size=60_000))
    found = count_words(data, tokenizer, size=500, min_count=3, options={})
    expected = plain_count(texts, tokenizer, 10_000, 3)
    unknown = {word.word for word in expected} - {word.word for word in found}
    assert found == [entry for entry in expected if entry in found]
    assert found[-1].count >= expected[len(found) + len(unknown & {e.word for e in expected[:510]}) - 1].count
    assert len(found) == 500


def test_words_with_unknown_tokens_are_left_out(tmp_path: Path):
    tokenizer = train_tokenizer(["cats and mats"] * 9, model="word_piece", size=300, min_count=1)
    data = write_texts(tmp_path, ["cats 한국어 cats 한국어 한국어 mats"])
    assert count_words(data, tokenizer, size=9, min_count=1, options={}) == [WordCount("cats", 2), WordCount("mats", 1)]


def test_empty_corpus_is_refused_in_one_sentence(tmp_path: Path):
    tokenizer = train_tokenizer(["cats and mats"] * 9, model="bpe", size=300, min_count=1)
    data = write_texts(tmp_path, [])
    with pytest.raises(ConfigError):
        count_words(data, tokenizer, size=9, min_count=1, options={})


def test_corpus_without_frequent_words_and_with_bad_rows_is_refused(tmp_path: Path):
    tokenizer = train_tokenizer(["cats and mats"] * 9, model="bpe", size=300, min_count=1)
    data = write_texts(tmp_path, ["cats and mats"])
    with pytest.raises(ConfigError, match="min_count: no word of the corpus occurs 2 times"):
        count_words(data, tokenizer, size=9, min_count=2, options={})
    (tmp_path / "texts-1.jsonl").write_text('{"text": null}\n')
    with pytest.raises(QuarantineOverflowError, match="1 of 2 rows are bad"):
        count_words(data, tokenizer, size=9, min_count=1, options={})
