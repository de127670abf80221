"""Every query returns a result or raises ``QueryError``; no kernel reads outside its arrays, whatever they contain."""

import faulthandler
import math
import os
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import Searcher
from lsr_prod.search.query.filter_types import filter_from_json
from lsr_prod.search.query.filters import Combination, Condition, Negation, field
from lsr_prod.search.search_result import Explanation, SearchResult
from tests.indexing.corpus import make_index
from tests.search.test_match import topics

NUMBERS: list[Any] = [0, 1, -1, 2, 3, 7, 10, 1.0, 0.5, -0.0, 1e-45, 5e-324, 1e-38, 1e30, 3.4e38, 1e39, 1e308]
NUMBERS += [math.nan, math.inf, -math.inf, 10**400, 10**5000, -(10**5000), Fraction(1, 3), Fraction(1, 10**5000)]
NUMBERS += [np.float32(0.4), np.float64("nan"), np.int8(5), np.uint8(200), np.int64(9), np.bool_(True), Decimal("0.5")]
OTHERS: list[Any] = [None, True, "", "3", "ж", "\ud800", b"x", [], {}, (), [1], object(), 1j, "x" * 100_000, float, ...]
TERMS: list[Any] = ["t1", "t2", "unheard", "", "\ud800", "\0", "t" * 10_000, -1, 299, 300, 1 << 40, 10**5000, True]
TERMS += [None, 1.0, math.nan, np.int32(3), np.uint16(4), (1, 2), b"t1", frozenset()]
TEXTS: list[Any] = ["lock", "threads wait for a lock", "", " \n\t", "\0", "a\ud800b", "😀" * 50, "é" * 3000, "\u202e"]
TEXTS += ["(" * 5000, "AND OR NOT +-", "'; DROP TABLE", None, 3, b"lock", ["lock"], {"lock": 1}]
year, lang = field("year"), field("lang")
FILTERS: list[Any] = [
    None,
    year >= 3,
    ~(year == 5) | lang.is_null(),
    field("doc_id").is_in(["d1", "\x00"]),
    field("unknown") == 3,
    year == "x",
    year.starts_with("1"),
    lang > 3,
    year.is_in([]),
    Condition("year", "like", 3),  # type: ignore[arg-type]
    Condition("year", "in", 3),
    Condition("year", "eq", (1, 2)),
    Condition("year", "eq", None),
    Condition("year", "is_null", 3),
    Condition("year", "eq", 1 << 70),
    Condition("year", "eq", 10**5000),
    Condition("grade", "lt", math.nan),
    Condition([], "eq", 3),  # type: ignore[arg-type]
    Condition("lang", "eq", "\ud800"),
    Condition("lang", "eq", object()),  # type: ignore[arg-type]
    Condition("lang", [], "x"),  # type: ignore[arg-type]
    Combination("and", ()),
    Combination("xor", (year == 3, year == 4)),  # type: ignore[arg-type]
    Combination("or", 5),  # type: ignore[arg-type]
    Combination("or", (5,)),  # type: ignore[arg-type]
    Negation(5),  # type: ignore[arg-type]
    {"field": "year", "op": "eq", "value": 3},
    "year == 3",
]
for _ in range(40):
    FILTERS[-1] = Negation(FILTERS[-1])  # nested deeper than the limit
NAMES: list[Any] = [
    (),
    [],
    ["text"],
    ("year", "lang"),
    ["nothing"],
    ["\ud800"],
    [3],
    "text",
    3,
    None,
    {"text"},
    ["text"] * 500,
]


class Dice:
    """Random choices, mostly valid: a query that is rejected at once tests little."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, some: list[Any]) -> Any:
        return some[int(self.rng.integers(len(some)))]

    def often(self, sensible: list[Any], odd: list[Any]) -> Any:
        return self.one(sensible) if self.rng.random() < 0.85 else self.one(odd)

    def vector(self) -> Any:
        if self.rng.random() < 0.02:
            return self.one([None, 3, b"t1", [("t1", 1.0)], {}, {1, 2}])
        sensible = [int(t) for t in self.rng.integers(0, 300, 5)]
        strange = self.rng.random() < 0.3
        return {
            (self.often(sensible, TERMS) if strange else self.one(sensible)): (
                self.often([0.5, 1.0, 2.5], NUMBERS + OTHERS) if strange else float(self.rng.exponential())
            )
            for _ in range(int(self.rng.integers(0, 8)))
        }

    def options(self) -> dict[str, Any]:
        odd = NUMBERS + OTHERS
        every = {
            "k": lambda: self.often([0, 1, 5, 10, 100, 10_000], [-1, 10_001, *odd]),
            "overlap_threshold": lambda: self.often([0, 0.3, 1, 1.0], [1.1, -1, *odd]),
            "min_terms": lambda: self.often([1, 2, 3], [0, 1 << 16, 1 << 31, 1 << 63, 10**30, *odd]),
            "qk": lambda: self.often([None, 1, 3], [0, 10**30, *odd]),
            "filter": lambda: self.often(FILTERS[:4], FILTERS),
            "min_score": lambda: self.often([0.0, 0.5, 3], odd),
            "rescore": lambda: self.often([None, 10, 100, 10_000], odd),
            "deduplicate": lambda: self.often([None, "year", "lang", "text"], odd),
            "deadline_ms": lambda: self.often([None, 0, 0.01, 1000], odd),
            "count": lambda: self.often([True, False], odd),
            "fields": lambda: self.often(NAMES[:4], NAMES),
        }
        chosen = [name for name in every if self.rng.random() < 0.25]
        return {name: every[name]() for name in chosen}


def ask(searcher: Searcher, dice: Dice, *, text: bool) -> str:
    """Make one call and return its outcome."""
    options = dice.options()
    how = dice.one(["search", "search", "search", "explain", "count", "batch"])
    query = dice.one(TEXTS) if text else dice.vector()
    try:
        match how:
            case "explain":
                doc_id = dice.often(["threading.Lock", sorted_ids(searcher)], OTHERS + NUMBERS)
                found = searcher.explain(query, doc_id, qk=options.get("qk"))
                assert isinstance(found, Explanation)
            case "count":
                options.pop("k", None)
                assert searcher.count(query, **options) >= 0
            case "batch" if text:
                texts = dice.often([[query], [query, "lock"], []], OTHERS + NUMBERS)
                for each in searcher.search_batch(texts, **options):
                    check(each, options)
            case _ if text:
                check(searcher.search(query, **options), options)
            case _:
                check(searcher.search_vector(query, **options), options)
    except QueryError as error:
        return "refused" if 10 < len(str(error)) < 700 else pytest.fail(f"a message of odd length: {error}")
    return "answered"


def sorted_ids(searcher: Searcher) -> str:
    return searcher.snapshot.readers[0].shard.documents.doc_id(0)


def check(result: SearchResult, options: dict[str, Any]) -> None:
    assert len(result.hits) <= int(options.get("k", 10))
    ranks = [(-hit.score, hit.doc_id) for hit in result.hits]
    assert ranks == sorted(ranks)
    assert all(math.isfinite(hit.score) and hit.score >= 0 for hit in result.hits)
    assert result.required >= 1


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    folder = tmp_path_factory.mktemp("fuzz") / "index"
    types = {"year": "int64", "lang": "string", "grade": "float64"}
    make_index(folder, topics(500, 3), vocabulary_size=300, shards=2, attributes=types)
    return Searcher.open(folder)


def fuzz(vectors: Searcher, texts: Searcher, count: int, seed: int) -> None:
    assert faulthandler.is_enabled()  # enabled by pytest; a crash prints its stack
    dice, ended = Dice(seed), Counter[str]()
    for i in range(count):
        ended[ask(texts, dice, text=True) if i % 20 == 0 else ask(vectors, dice, text=False)] += 1
    assert min(ended["answered"], ended["refused"]) > count / 10
    # No earlier query has left state in the workspace.
    assert [hit.doc_id for hit in vectors.search_vector({1: 1.0}, k=3).hits]
    assert vectors.search_vector({1: 1.0}).hits == Searcher.open(vectors.snapshot.index).search_vector({1: 1.0}).hits


def test_random_query_returns_result_or_raises_query_error(vectors, text_index):
    fuzz(vectors, Searcher.open(text_index), 5_000, 1)


@pytest.mark.slow
def test_100000_random_queries_return_result_or_raise_query_error(vectors, text_index):
    fuzz(vectors, Searcher.open(text_index), 100_000, 2)


def test_megabyte_text_query_returns_result(text_index):
    searcher = Searcher.open(text_index)
    for text in ("lock thread " * 90_000, "x" * 1_000_000, "é\u0301" * 300_000, "\0" * 1_000_000):
        assert searcher.search(text, k=3).required == 1


def test_query_of_all_terms_matches_and_too_many_terms_are_rejected(vectors):
    assert vectors.search_vector(dict.fromkeys(range(300), 1.0), k=10_000).matched == 500
    with pytest.raises(QueryError, match="at most 65535"):
        vectors.search_vector({f"word {i}": 1.0 for i in range(70_000)})


def test_huge_integers_are_reported_in_short_messages():
    for value in ({"field": "year", "op": "eq", "value": 10**5000}, {"and": [10**5000]}, 10**5000):
        with pytest.raises(QueryError) as caught:
            filter_from_json(value)
        assert len(str(caught.value)) < 300


@pytest.mark.long
@pytest.mark.parametrize(("rounds", "least"), [(1000, 100), pytest.param(3000, 300, marks=pytest.mark.slow)])
def test_kernels_never_read_outside_corrupt_arrays(tmp_path: Path, rounds: int, least: int):
    """Compile the kernels with sanitizers; see ``tests/search/corrupt.py``."""
    root, library = Path(__file__).parents[2], tmp_path / "native.so"
    code = "import pathlib, sys, build_kernels; build_kernels.compile_kernels(pathlib.Path(sys.argv[1]), *sys.argv[2:])"
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1"]
    subprocess.run([sys.executable, "-c", code, str(library), *flags], cwd=root, check=True)
    preload = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {"LD_PRELOAD": preload.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    command = [sys.executable, "-m", "tests.search.corrupt", str(tmp_path / "index"), str(rounds), str(library)]
    done = subprocess.run(
        command, cwd=root, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    refused, answered = map(int, done.stdout.split())
    assert refused > least
    assert answered > least
