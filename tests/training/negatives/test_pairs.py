"""Tests of reading pairs from JSONL, Parquet and Delta, and of the reasons of bad rows."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lsr_prod.config import MineSettings
from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.training.negatives.inputs import Pair, cut_pairs, read_pairs
from tests.training.negatives.conftest import settings, write_lines


def read_all(section: MineSettings) -> list[Pair | BadRow]:
    return [row for piece in cut_pairs(section, {}) for _, row in read_pairs(piece, section, {})]


ROWS = [
    {"query": "first", "positive": "text one", "pid": "1"},
    {"query": "second", "positive": None, "pid": "2"},
    {"query": "third", "positive": "text three", "pid": None},
]
PAIRS = [Pair("first", "text one", "1"), Pair("second", None, "2"), Pair("third", "text three", None)]


def test_every_format_gives_the_same_pairs(tmp_path: Path):
    write_lines(tmp_path / "a.jsonl", ROWS)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "c.parquet")
    write_deltalake(str(tmp_path / "d"), pa.Table.from_pylist(ROWS))
    for name in ("a.jsonl", "b.jsonl.gz", "c.parquet", "d"):
        assert read_all(settings("index", tmp_path / name)) == PAIRS, name


def test_columns_can_be_renamed_and_other_kinds_are_read_as_pairs(tmp_path: Path):
    rows = [{"q": "first", "pos": "text", "negatives": ["a", "b"], "qid": 7, "doc": 8}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    section = settings(
        "index",
        tmp_path / "rows.parquet",
        positive_id="doc",
        query_id="qid",
        data={"kind": "negatives", "columns": {"query": "q", "positive": "pos"}},
    )
    assert read_all(section) == [Pair("first", "text", "8", "7")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{broken", "broken_json"),
        ("[1]", "not_an_object"),
        ({"positive": "p"}, "empty_query"),
        ({"query": " \t", "positive": "p"}, "empty_query"),
        ({"query": 7, "positive": "p"}, "wrong_type"),
        ({"query": "q", "positive": ["p"]}, "wrong_type"),
        ({"query": "q", "positive": "p", "pid": 3.5}, "wrong_type"),
        ({"query": "q"}, "missing_positive"),
        ({"query": "q", "positive": " ", "pid": ""}, "missing_positive"),
        ({"query": "q" * 200, "positive": "p"}, "text_too_long"),
        ({"query": "q", "positive": "p" * 200}, "text_too_long"),
        ('{"query": "\\ud800", "positive": "p"}', "invalid_utf8"),
    ],
)
def test_invalid_row_has_its_reason(tmp_path: Path, row: Any, reason: str):
    path = write_lines(tmp_path / "rows.jsonl", [row, ROWS[0]])
    bad, good = read_all(settings("index", path, data={"max_text_bytes": 100}))
    assert isinstance(bad, BadRow)
    assert bad.reason == reason
    assert good == PAIRS[0]
    shown = row if isinstance(row, str) else json.dumps(row)
    assert bad.raw == shown


def test_teacher_with_query_ids_requires_a_query_id_in_every_row(tmp_path: Path):
    path = write_lines(tmp_path / "rows.jsonl", [ROWS[0], {**ROWS[0], "qid": "q1"}])
    section = settings("index", path, query_id="qid", margin=1, teacher={"paths": ["scores"], "key": "query_id"})
    bad, good = read_all(section)
    assert isinstance(bad, BadRow)
    assert bad.reason == "missing_query_id"
    assert good == Pair("first", "text one", "1", "q1")


def test_slices_cover_a_file_exactly_once(tmp_path: Path):
    rows = [{"query": f"query {i}", "positive": "x" * 5000} for i in range(500)]
    section = settings("index", write_lines(tmp_path / "rows.jsonl", rows))
    assert len(cut_pairs(section, {})) == 10
    assert [row.query for row in read_all(section) if isinstance(row, Pair)] == [row["query"] for row in rows]


def test_damaged_file_raises(tmp_path: Path):
    whole = gzip.compress("".join(json.dumps({"query": f"q{i}", "positive": "p"}) + "\n" for i in range(9)).encode())
    (tmp_path / "rows.jsonl.gz").write_bytes(whole[:-8])
    with pytest.raises(SourceError, match=r"rows\.jsonl\.gz is damaged: .* 9 rows before it were read"):
        read_all(settings("index", tmp_path / "rows.jsonl.gz"))


def test_changed_file_raises_error(tmp_path: Path):
    section = settings("index", write_lines(tmp_path / "rows.jsonl", ROWS))
    (piece,) = cut_pairs(section, {})
    write_lines(tmp_path / "rows.jsonl", ROWS[:1])
    with pytest.raises(SourceError, match="has changed since it was pinned"):
        list(read_pairs(piece, section, {}))


def test_errors_name_the_fields_of_section_mine(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"^mine\.data\.paths: there is nothing"):
        cut_pairs(settings("index", tmp_path / "absent.jsonl"), {})
    (tmp_path / "rows.csv").write_text("query,positive\na,b\n")
    with pytest.raises(ConfigError, match=r"^mine\.data\.paths: .*rows\.csv is csv; give Parquet"):
        cut_pairs(settings("index", tmp_path / "rows.csv"), {})
    pq.write_table(pa.table({"question": ["a"], "pid": ["b"]}), tmp_path / "rows.parquet")
    with pytest.raises(
        ConfigError, match=r"^mine\.data\.columns: .* has no column query; use one of .*: pid, question"
    ):
        cut_pairs(settings("index", tmp_path / "rows.parquet"), {})
