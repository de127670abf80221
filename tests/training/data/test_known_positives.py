import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.training.data import known_positives
from lsr_prod.training.data.known_positives import KnownTable, key_ranges, write_key_range
from lsr_prod.training.data.training_set import SetRecord, TrainingSet, text_keys
from tests.training.sets import make_set

texts = st.text("abc", min_size=1, max_size=2)
rows_of_parts = st.lists(st.lists(st.fixed_dictionaries({"query": texts, "positive": texts})), min_size=1, max_size=4)


def key(text: str) -> int:
    return int(text_keys([np.array([ord(letter) - ord("a") for letter in text], np.int32)])[0])


def expected(parts: list[list[dict[str, Any]]]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for row in (row for part in parts for row in part):
        found[key(row["query"])].add(key(row["positive"]))
    return found


def looked_up(found: TrainingSet, queries: list[int]) -> list[list[int]]:
    owners, positives = found.known_positives(np.array(queries, np.int64))
    return [sorted(positives[owners == i].tolist()) for i in range(len(queries))]


@pytest.mark.long
@given(rows_of_parts, st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_known_positives_are_those_of_queries_with_several(
    tmp_path_factory: pytest.TempPathFactory, parts: Any, rows_of_range: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_positives, "_ROWS_OF_RANGE", rows_of_range)
        store, digest = make_set(tmp_path_factory.mktemp("set"), "pairs", parts)
    found, plain = TrainingSet.open(store, digest), expected(parts)
    queries = [*plain, key("a"), key("zz")]
    assert looked_up(found, queries) == [
        sorted(plain.get(query, ())) if len(plain.get(query, ())) > 1 else [] for query in queries
    ]
    record = found._record
    assert sum(one.queries for one in record.keys) == len(plain)
    assert sum(one.positives for one in record.keys) == len(set().union(*plain.values()))
    assert SetRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


@given(rows_of_parts, st.data())
@settings(max_examples=15, deadline=None)
def test_keys_of_rows_are_those_of_query_and_positive(
    tmp_path_factory: pytest.TempPathFactory, parts: Any, data: st.DataObject
):
    found = TrainingSet.open(*make_set(tmp_path_factory.mktemp("set"), "pairs", parts))
    rows = [row for part in parts for row in part]
    wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []
    queries, positives = found.keys(np.array(wanted, np.int64))
    assert queries.tolist() == [key(rows[row]["query"]) for row in wanted]
    assert positives.tolist() == [key(rows[row]["positive"]) for row in wanted]


@given(st.integers(0, 10**9))
def test_ranges_cover_all_keys_once(rows: int):
    ranges = key_ranges(rows)
    assert ranges[0][0] == -(2**63)
    assert ranges[-1][1] == 2**63 - 1
    assert all(after[0] == before[1] + 1 for before, after in pairwise(ranges))
    assert len(ranges) <= 1 + rows // known_positives._ROWS_OF_RANGE


def test_look_up_returns_a_bounded_number_of_positives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [{"query": "a", "positive": text} for text in ("b", "c", "d", "e")]
    found = TrainingSet.open(*make_set(tmp_path, "pairs", [rows]))
    monkeypatch.setattr(known_positives, "MOST_POSITIVES", 3)
    smallest = sorted(map(key, "bcde"))[:3]
    assert looked_up(found, [key("a"), key("b"), key("a")]) == [smallest, [], smallest]


def test_set_without_rows_has_no_known_positives(tmp_path: Path):
    empty = write_key_range(Store(str(tmp_path)), [], -(2**63), 2**63 - 1)
    assert (empty.queries, empty.positives, empty.file) == (0, 0, None)
    owners, positives = KnownTable([]).look_up(np.array([1, 2]))
    assert len(owners) == len(positives) == 0


def test_damaged_known_positives_are_detected(tmp_path: Path):
    rows = [{"query": "a", "positive": text} for text in "bc"]
    store, digest = make_set(tmp_path, "pairs", [rows])
    (path,) = Path(store.uri).rglob("positives-*.arrow")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ArtifactError):
        TrainingSet.open(store, digest)
