"""Boolean queries match the expected documents."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tantivy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.errors import QueryError
from lsr_prod.indexing.boolean import BooleanWriter
from lsr_prod.inference.terms.analysis import distinct_words
from lsr_prod.search.boolean_query import parse_text_queries
from lsr_prod.search.query.filter_types import CheckedFilter
from lsr_prod.search.query.query_text import text_query
from lsr_prod.search.shard.boolean_shard import BooleanShard
from lsr_prod.search.shard.shard_reader import evaluate
from lsr_prod.storage.formats.shard_format import TANTIVY_FOLDER
from tests.search.filtering import TYPES, Row, batches

NOTHING = dict.fromkeys(TYPES)


@dataclass(frozen=True)
class Library:
    """Rows with their texts, as a shard has them."""

    rows: Sequence[Row]
    shard: BooleanShard

    @classmethod
    def of(cls, folder: Path, rows: Sequence[Row], texts: Sequence[str]) -> "Library":
        with BooleanWriter(folder) as writer:
            writer.add(texts)
        return cls(rows, BooleanShard(tantivy.Index.open(str(folder / TANTIVY_FOLDER)), len(rows)))

    def match_query(self, text: str) -> list[int]:
        """Return the rows that match a Boolean query."""
        parsed = parse_text_queries(text_query(text), TYPES, distinct_words)
        return np.flatnonzero(evaluate(CheckedFilter.of(parsed), batches(self.rows), self._find)).tolist()

    def _find(self, tokens: Sequence[str]) -> np.ndarray:
        return np.isin(np.arange(len(self.rows)), self.shard.match_tokens(tokens) if tokens else range(len(self.rows)))


DOCS = [
    (
        "A lock is held by one thread.",
        {"lang": "en", "year": 1999, "published": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)},
    ),
    ("Locks, without the other word.", {"lang": "en-GB", "year": 2000, "grade": 0.5, "open": True}),
    ("Ein Schloss: thread-safe", {"lang": "de", "year": -5, "open": False}),
    ("", {"lang": "a b:c*"}),
    ("sockets", {"published": dt.datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)}),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    rows = [{**NOTHING, **attributes} for _, attributes in DOCS]
    return Library.of(tmp_path_factory.mktemp("library"), rows, [text for text, _ in DOCS])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("lock", [0, 1]),
        ("LOCKING", [0, 1]),
        ("lock AND NOT thread", [1]),
        ("lock -thread", [1]),
        ("+lock thread", [0, 1]),
        ("lock AND thread", [0]),
        ("lock thread", [0, 1, 2]),
        ("lock OR sockets", [0, 1, 4]),
        ("NOT lock", [2, 3, 4]),
        ("-lock -thread", [3, 4]),
        ("NOT NOT lock", [0, 1]),
        ("NOT (lock OR thread)", [3, 4]),
        ("(lock OR schloss) AND thread", [0, 2]),
        ("thread-safe", [2]),
        ('"lock"', [0, 1]),
        ("text:lock^3", [0, 1]),
        ("text:IN [sockets schloss]", [2, 4]),
        ("*", [0, 1, 2, 3, 4]),
        ("* -lock", [2, 3, 4]),
        ("lang:en", [0]),
        ("lang:[b TO en]", [0, 2]),
        ("lang:EN", []),
        ("lang:en*", [0, 1]),
        ('lang:"en-"*', [1]),
        ('lang:"a b:c*"', [3]),
        ("lang:(en OR de)", [0, 2]),
        ('lang:IN [de "a b:c*"]', [2, 3]),
        ("lang:*", [0, 1, 2, 3]),
        ("-lang:*", [4]),
        ("year:1999", [0]),
        ("year:-5", [2]),
        ("year:[1999 TO 2000}", [0]),
        ("year:>1999", [1]),
        ("year:[* TO 1999]", [0, 2]),
        ("year:[* TO *]", [0, 1, 2]),
        ("NOT year:>1999", [0, 2]),  # documents 3 and 4 have no year
        ("lock AND NOT year:>1999", [0]),
        ("grade:<=0.5", [1]),
        ("open:true", [1]),
        ("year:[1999 TO 2000]", [0, 1]),
        ("year:{1999 TO 2000]", [1]),
        ("year:>=2000", [1]),
        ("year:<1999", [2]),
        ("published:[2020-01-01 TO 2020-01-01]", [0]),
        ('published:"2020-01-01"', [0]),
        ("published:>2020-01-01T00:00:00Z", [4]),
        ("published:[2020-01-01T00:00:00Z TO *]", [0, 4]),
        ("published:<2020-01-01T00:00:00.000001Z", [0]),
    ],
)
def test_queries_match_expected_documents(library, query, found):
    assert library.match_query(query) == found


WORDS = st.sampled_from(["lock", "thread", "schloss"])
NUMBERS = st.sampled_from([-5, 0, 1999, 2000])
LEAVES = st.one_of(
    WORDS.map(lambda word: (word, lambda row: word in row["text"].lower())),
    NUMBERS.map(lambda n: (f"year:{n}", lambda row: row["year"] and row["year"] == n)),
    NUMBERS.map(lambda n: (f"year:>{n}", lambda row: row["year"] and row["year"] > n)),
    st.just(("open:true", lambda row: row["open"])),
    st.just(("lang:*", lambda row: row["lang"] is not None)),
)


def _either(decides, a, b):
    def of(row):
        found = [a(row), b(row)]
        return decides if decides in found else None if None in found else not decides

    return of


def _opposite(a):
    return lambda row: None if a(row) is None else not a(row)


QUERIES = st.recursive(
    LEAVES,
    lambda some: st.one_of(
        st.builds(lambda a, b: (f"({a[0]} AND {b[0]})", _either(False, a[1], b[1])), some, some),
        st.builds(lambda a, b: (f"({a[0]} OR {b[0]})", _either(True, a[1], b[1])), some, some),
        st.builds(lambda a, b: (f"(+{a[0]} -{b[0]})", _either(False, a[1], _opposite(b[1]))), some, some),
        st.builds(lambda a: (f"(NOT {a[0]})", _opposite(a[1])), some),
    ),
    max_leaves=6,
)


@pytest.mark.long
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=QUERIES)
def test_nested_and_or_not_follow_brackets(library, made):
    query, truth = made
    rows = [{**NOTHING, **attributes, "text": text} for text, attributes in DOCS]
    assert library.match_query(query) == [i for i, row in enumerate(rows) if truth(row) is True]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "empty"),
        ("lock AND (", "cannot be parsed; balance"),
        ("f:x:y", "double quotes"),
        ("yaer:1999", r"no attribute 'yaer'; it has doc_id and: lang \(string\)"),
        ("year:soon", "'soon' does not fit attribute 'year'; give a int64"),
        ("year:>soon", "'soon' does not fit"),
        ("open:>true", "does not support gt"),
        ("[a TO b]", "words only"),
        ("text:*", "words only"),
        ('"lock thread"', "stores no positions"),
        ("loc*", "prefix of a word"),
        ("/lo.*/", "does not support regex"),
        ("lock AND !!!", "contains no indexable word"),
        ("\ud800", "is not a valid string"),
        (5, "is not a valid string"),
        ("x" * 5000, "5000 characters"),
        ("(" * 17 + "a" + ")" * 17, "more than 16 brackets"),
        ("NOT " * 101 + "a", "more than 100 NOT"),
        ("NOT " * 100 + "a", "more than 32 deep"),
    ],
)
def test_invalid_boolean_query_is_rejected(library, query, message):
    with pytest.raises(QueryError, match=message):
        library.match_query(query)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(alphabet='abNOTAND ()[]{}":+-*^~/\\<>=!.1é\ud800', max_size=40) | st.text(max_size=20))
def test_any_boolean_text_returns_result_or_raises_query_error(library, query):
    try:
        found = library.match_query(query)
    except QueryError:
        return
    assert set(found) <= set(range(len(DOCS)))
