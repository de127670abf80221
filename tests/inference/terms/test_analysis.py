"""Both BM25 paths, queries and highlights have equal words."""

import json
import tempfile
import time
import unicodedata
from pathlib import Path
from typing import get_args

import pytest
import tantivy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lsr_prod.indexing.boolean import BooleanWriter
from lsr_prod.indexing.impacts.postings import WordSpill
from lsr_prod.inference.terms.analysis import distinct_words, find_places, words_of
from lsr_prod.storage.formats.index_format import Analyzer
from lsr_prod.storage.formats.shard_format import TANTIVY_FOLDER, TEXT_FIELD

ANALYZERS = get_args(Analyzer)
SCRIPTS = [
    "東京都に住む。",
    "ｶﾞｲﾄﾞＡＢＣ",
    "ดูน้ำตกที่กรุงเทพฯ",
    "한국어 ᄒ\u1161ᆫ",
    "ភាសាខ្មែរ",
    "မြန်မာ",
    "தமிழ் हिन्दी",
    "e\u0301Ǆﬁ²™",
]
TEXTS = st.text(max_size=40) | st.text(st.sampled_from(" aA1_-'\u0301\ufe0f\u3099" + "".join(SCRIPTS)), max_size=40)
SAMPLES = ["Running foxes' DOGS", "x" * 39 + " " + "y" * 40 + " " + "z" * 130, "naïve Ünïcode", *SCRIPTS]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS | st.sampled_from(SAMPLES), analyzer=st.sampled_from(ANALYZERS))
def test_both_paths_have_equal_words(tmp_path: Path, text: str, analyzer: Analyzer) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    with BooleanWriter(folder, analyzer, segment_documents=64) as writer:
        writer.add([text])
    words = WordSpill(folder / "words", 1.0, analyzer)
    words.add([text])
    names = words.finish().names

    index = tantivy.Index.open(str(folder / TANTIVY_FOLDER))
    searcher = index.searcher()
    for name in names:
        query = tantivy.Query.term_query(index.schema, TEXT_FIELD, name, index_option="freq")
        found = searcher.search(query)
        assert len(found.hits) == 1
        parts = json.loads(query.explain(searcher, found.hits[0][1]).to_json())["details"][-1]["details"]
        lengths = [part["value"] for part in parts if part["description"] == "dl, length of field"]
        assert lengths == [len(words_of(text, analyzer))]  # Tantivy has no further words
    assert set(names) == set(distinct_words(text, analyzer))


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, analyzer=st.sampled_from(ANALYZERS))
@example(text="\u30ab\u0e48\u3099", analyzer="english")  # the last mark is composed with the letter
@example(text="a\uff9e\u0301", analyzer="english")
@example(text="\u0e38\u0e48\u0e48", analyzer="simple")
def test_places_are_those_of_the_words(text: str, analyzer: Analyzer) -> None:
    places = list(find_places(text, analyzer))
    assert [word for _, _, word in places] == words_of(text, analyzer)
    assert all(0 <= start < stop <= len(text) for start, stop, _ in places)
    starts = [start for start, _, _ in places]
    assert starts == sorted(starts)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, analyzer=st.sampled_from(ANALYZERS))
def test_composed_and_decomposed_texts_have_equal_words(text: str, analyzer: Analyzer) -> None:
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert words_of(composed, analyzer) == words_of(decomposed, analyzer) == words_of(text, analyzer)


@pytest.mark.parametrize(
    ("analyzer", "text", "words"),
    [
        ("english", "Locks, locking; the LOCK", ["lock", "lock", "the", "lock"]),
        ("english", "a" * 39 + " " + "b" * 40, ["a" * 39]),
        ("english", " .!", []),
        ("english", "東京都に", ["東京都に"]),
        ("english", "Java™ ＡＢＣ", ["java", "abc"]),
        ("simple", "Locks HÄUSER don't", ["locks", "häuser", "don", "t"]),
        ("simple", "достопримечательность", ["достопримечательность"]),
        ("simple", "हिन्दी", ["हिन्दी"]),
        ("german", "Häuser Katzen", ["haus", "katz"]),
        ("french", "continuellement chevaux", ["continuel", "cheval"]),
        ("bigrams", "東京都に住む, 猫 and Locks", ["東京", "京都", "都に", "に住", "住む", "猫", "and", "locks"]),
        ("bigrams", "Tシャツ3枚", ["t", "シャ", "ャツ", "3", "枚"]),
        ("bigrams", "ｶﾞｲﾄﾞ", ["ガイ", "イド"]),
        ("bigrams", "น้ำตก", ["น้ำ", "ำต", "ตก"]),
        ("bigrams", "서울특별시", ["서울", "울특", "특별", "별시"]),
    ],
)
def test_words_of_a_text(analyzer: Analyzer, text: str, words: list[str]) -> None:
    assert words_of(text, analyzer) == words
    assert distinct_words(text, analyzer) == list(dict.fromkeys(words))


@pytest.mark.parametrize(
    "text", ["a" + "\u0301\u0323" * 20_000, "a" + "\u0301" * 40_000, "a" + "\uff9e\u0323" * 20_000]
)
def test_work_for_marks_is_bounded(text: str) -> None:
    """Python composes a run of n unordered marks in n² steps: seconds for these texts."""
    began = time.process_time()
    words = words_of(f"{text} lock", "bigrams")
    assert (len(words), words[1]) == (2, "lock")
    assert [word for _, _, word in find_places(f"{text} lock", "bigrams")] == words
    assert time.process_time() - began < 1
