"""``Index.from_texts``: an index of texts in memory answers as the built index does."""

import datetime as dt
import gc
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lsr_prod
from lsr_prod.errors import ArtifactError, ConfigError, QueryError
from lsr_prod.indexing.text_index import Index
from lsr_prod.search import Hybrid, Searcher, field
from lsr_prod.storage.formats.term_weights import K1, B
from tests.indexing.corpus import encode_corpus, make_index
from tests.search.conftest import TEXTS

QUERIES = ["how do threads wait for a lock", "parse json", "", "unheard-of wrds", "open a compressed file"]


@pytest.fixture(scope="module")
def index(tiny_bundle: Path) -> Index:
    return lsr_prod.Index.from_texts(TEXTS, tiny_bundle, bm25=True)


def answers(searcher: Searcher, text: str) -> list[object]:
    results = [
        searcher.search(text, 20, count=True, fields=["text"]),
        searcher.search(text, 3, overlap_threshold=0.3, qk=8),
        searcher.search(text, 5, rescore=10, deduplicate="text"),
        searcher.search(text, 5, hybrid=Hybrid(words=2.0)),
        searcher.search(text, 5, filter=field("doc_id").starts_with("json")),
        searcher.bm25(text, 5),
    ]
    return [(result.hits, result.required, result.query) for result in results]


def test_answers_equal_those_of_the_built_index(index: Index, tiny_bundle: Path, tmp_path: Path) -> None:
    step = index.version.impact_step
    corpus = encode_corpus(tiny_bundle, TEXTS, step=step, top_k=256)
    make_index(tmp_path, corpus, bundle=tiny_bundle, shards=2, dk=256, bm25=True, step=step)
    with Searcher.open(tmp_path) as built:
        for text in QUERIES:
            assert answers(index, text) == answers(built, text)
        assert index.match_boolean("thread AND lock") == built.match_boolean("thread AND lock")
        assert index.explain("parse json", "json.loads") == built.explain("parse json", "json.loads")


def test_closed_index_deletes_its_folder(tiny_bundle: Path) -> None:
    with Index.from_texts(["a lock", "a thread"], tiny_bundle) as index:
        folder = index.snapshot.index
        assert [hit.doc_id for hit in index.search("lock", 1).hits] == ["0"]
        assert not index.refresh()
        assert folder.is_dir()
    assert not folder.exists()
    with pytest.raises(QueryError, match="this searcher is closed"):
        index.search("lock")


def test_forgotten_index_deletes_its_folder(tiny_bundle: Path) -> None:
    index = Index.from_texts(["a lock"], tiny_bundle)
    folder = index.snapshot.index
    del index
    gc.collect()
    assert not folder.exists()


@pytest.mark.long
def test_forked_child_does_not_delete_the_folder() -> None:
    source = """
import os
import sys

from lsr_prod import Index

index = Index.from_texts(["a lock"])
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
assert index.match_boolean("lock") == {"0"}
folder = index.snapshot.index
index.close()
assert not folder.exists()
"""
    subprocess.run([sys.executable, "-c", source], check=True, timeout=60)


def test_index_without_an_encoder_ranks_words_by_bm25() -> None:
    texts = ["Parse a date", "A date, a date: a DATE!", "the square root of a number", "", "naïve café"]
    with Index.from_texts(texts) as index:
        result = index.search("Which date? zzz", k=10, count=True)
        words = [re.findall(r"\w+", text.lower()) for text in texts]
        average = sum(map(len, words)) / len(words)
        expected = {}
        for number, document in enumerate(words):
            frequency = document.count("date")
            if frequency:
                length = K1 * (1 - B + B * len(document) / average)
                # 4 of the 5 texts have a word, and "date" is in 2 of them.
                expected[str(number)] = math.log1p((4 - 2 + 0.5) / 2.5) * frequency * (K1 + 1) / (frequency + length)
        assert {hit.doc_id: hit.score for hit in result.hits} == pytest.approx(expected, rel=0.02)
        assert [hit.doc_id for hit in index.search("CAFÉ").hits] == ["4"]
        assert index.search("nothing known").hits == ()


def test_index_of_words_keeps_every_word_of_a_long_text() -> None:
    with Index.from_texts([" ".join(f"word{number}" for number in range(1000))]) as index:
        assert all(index.search(f"word{number}").matched == 1 for number in range(0, 1000, 37))


def test_fields_and_attributes_are_stored(tiny_bundle: Path) -> None:
    fields = {"year": [2020, None], "at": [dt.datetime(2024, 5, 1, tzinfo=dt.UTC), "2025-01-01"], "url": ["u", None]}
    types = {"year": "int64", "at": "timestamp"}
    with Index.from_texts(["a lock", "a thread"], tiny_bundle, fields=fields, attributes=types) as index:
        assert index.get(["0", "1"], ["text", "url", "year", "at"]) == [
            {"text": "a lock", "url": "u", "year": 2020, "at": fields["at"][0]},
            {"text": "a thread", "url": None, "year": None, "at": dt.datetime(2025, 1, 1, tzinfo=dt.UTC)},
        ]
        assert index.search("lock", filter=field("year") == 2020).matched == 1


def test_missing_values_of_pandas_are_no_values() -> None:
    fields = {
        "time": pd.Series([pd.Timestamp("2024-01-01T00:00:00Z"), pd.NaT]),
        "number": pd.Series([1, None], dtype="Int64"),
        "flag": pd.Series([None, True], dtype="boolean"),
    }
    with Index.from_texts({"a": "one fox", "b": "two fox"}, fields=fields) as index:
        found = {hit.doc_id: hit.fields for hit in index.search("fox", fields=list(fields)).hits}
    time = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert found == {
        "a": {"time": time, "number": 1, "flag": None},
        "b": {"time": None, "number": None, "flag": True},
    }


def test_index_without_texts_answers_without_hits(tiny_bundle: Path) -> None:
    with Index.from_texts([], tiny_bundle) as index:
        assert index.search("lock").hits == ()


@pytest.mark.parametrize(
    ("texts", "more", "message"),
    [
        ("one text", {}, "texts: .* give a list of strings"),
        (["a", None], {}, "texts: document '1' has None"),
        (["a", "b \ud800"], {}, "texts: document '1' has 'b .ud800'"),
        ({"": "a"}, {}, "texts: '' is no id"),
        ({"a\nb": "a"}, {}, "is no id"),
        ({3: "a"}, {}, "texts: 3 is no id"),
        ({b"a": "a"}, {}, "texts: b'a' is no id"),
        (["a"], {"fields": {"url": []}}, "fields.url: has 0 values for 1 documents"),
        *[
            (["a"], {"fields": {name: ["x"]}}, "fields: .* is no name; give a valid name")
            for name in ("text", "terms", "bucket", "a,b", "", "\ud800", 3)
        ],
        ({"\ud800": "a"}, {}, "texts: '.ud800' is no id"),
        (["a"], {"fields": {"url": ["\ud800"]}}, "fields.url: it has invalid or mixed values"),
        (["a"], {"fields": {"url": [["\ud800"]]}}, "fields.url: it has invalid or mixed values"),
        (["a"], {"fields": {"year": [2**63]}}, "fields.year: it has invalid or mixed values"),
        (
            ["a"],
            {"fields": {"day": np.array(["2020-01-01"], "datetime64[D]")}},
            "fields.day: it has invalid or mixed values",
        ),
        (["a"], {"fields": {"url": [[1]]}}, "fields.url: it has invalid or mixed values"),
        (["a", "b"], {"fields": {"url": ["x", 1]}}, "fields.url: it has invalid or mixed values"),
        (["a"], {"fields": {"url": [["x", None]]}}, "fields.url: document '0' has None"),
        (["a"], {"attributes": {"year": "int64"}}, "year"),
        (["a"], {"fields": {"year": ["x"]}, "attributes": {"year": "int64"}}, "year: document '0': 'x' is no int64"),
        (["a"], {"fields": {"year": [1]}, "attributes": {"year": "int"}}, "attributes.year: 'int' is no type"),
    ],
)
def test_wrong_input_is_refused(tiny_bundle: Path, texts: object, more: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Index.from_texts(texts, tiny_bundle, **more)  # type: ignore[arg-type]


def test_folder_without_a_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError):
        Index.from_texts(["a"], tmp_path)
