"""Tests of parts, quarantine files, and the counts stored in the footer of a part."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.encoding.tables.quarantine_rows import quarantine_folder
from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.training.data.row_parts import QUARANTINE, PartReport, part_name
from lsr_prod.training.negatives.inputs import KnownPositives, cut_pairs
from lsr_prod.training.negatives.mine import MINED, MinedIndex, Miner, mine_slice
from tests.training.negatives.conftest import TEXTS, pairs_by_id, settings, write_lines

NOTHING = KnownPositives.of([])


def mine(index: MinedIndex, pairs: Path, output: Path, **changes: object) -> PartReport:
    section = settings("index", pairs, output, **changes)
    (piece,) = cut_pairs(section, {})
    return mine_slice(Miner(index, section, NOTHING, None), Store(str(output)), "p", 3, piece)


def test_rows_and_bad_rows_add_up_in_source_order(opened: MinedIndex, tmp_path: Path):
    rows = pairs_by_id()
    mixed = [rows[0], "{", *rows[1:4], {"query": "", "pid": "lock"}, {"query": "x", "pid": "absent"}, *rows[4:]]
    report = mine(opened, write_lines(tmp_path / "pairs.jsonl", mixed), tmp_path / "out", batch=2)
    table = pq.read_table(tmp_path / "out" / part_name(3))
    assert table["query"].to_pylist() == [row["query"] for row in rows]
    assert report.rows == 11
    assert report.made == table.num_rows == 8
    assert report.quarantined == {"broken_json": 1, "empty_query": 1, "unknown_positive": 1}
    lines = pq.read_table(tmp_path / "out" / QUARANTINE / quarantine_folder("p", 3)).to_pylist()
    assert [line["reason"] for line in lines] == ["broken_json", "empty_query", "unknown_positive"]
    source = (tmp_path / "pairs.jsonl").read_bytes()
    assert [source[line["position"] :].split(b"\n")[0] for line in lines[:2]] == [b"{", b'{"query": "", "pid": "lock"}']
    assert all(line["source"] == str(tmp_path / "pairs.jsonl") for line in lines)


def test_columns_match_training_data(opened: MinedIndex, tmp_path: Path):
    path = write_lines(tmp_path / "pairs.jsonl", pairs_by_id())
    report = mine(opened, path, tmp_path / "out", scores=True)
    table = pq.read_table(tmp_path / "out" / part_name(3))
    for row, pair in zip(table.to_pylist(), pairs_by_id(), strict=True):
        assert (row["query"], row["positive_id"], row["positive"]) == (pair["query"], pair["pid"], TEXTS[pair["pid"]])
        assert [TEXTS[doc_id] for doc_id in row["negative_ids"]] == row["negatives"]
        assert row["documents"] == [row["positive"], *row["negatives"]]
        assert row["scores"] == [row["positive_score"], *row["negative_scores"]]
        assert row["negative_scores"] == sorted(row["negative_scores"], reverse=True)
    assert report.counts["negatives"] == sum(map(len, table["negatives"].to_pylist()))
    mine(opened, path, tmp_path / "without")
    names = pq.read_schema(tmp_path / "without" / part_name(3)).names
    assert not {"documents", "scores"} & set(names)


def test_equal_slices_make_equal_bytes(opened: MinedIndex, tmp_path: Path):
    path = write_lines(tmp_path / "pairs.jsonl", pairs_by_id())
    for name in ("a", "b"):
        mine(opened, path, tmp_path / name)
    assert (tmp_path / "a" / part_name(3)).read_bytes() == (tmp_path / "b" / part_name(3)).read_bytes()
    assert not (tmp_path / "a" / QUARANTINE).exists()


def test_slice_of_bad_rows_makes_an_empty_part(opened: MinedIndex, tmp_path: Path):
    report = mine(opened, write_lines(tmp_path / "pairs.jsonl", ["{", "["]), tmp_path / "out")
    assert (report.rows, report.made, report.quarantined) == (2, 0, {"broken_json": 2})
    assert pq.read_table(tmp_path / "out" / part_name(3)).num_rows == 0


def test_report_is_read_back_from_the_footer(opened: MinedIndex, tmp_path: Path):
    path = write_lines(tmp_path / "pairs.jsonl", [*pairs_by_id(), "{"])
    report = mine(opened, path, tmp_path / "out")
    found = MINED.read(Store(str(tmp_path / "out")), 3)
    assert found == report == MINED.from_json(MINED.to_json(report))
    assert isinstance(found.dropped, Counter)


@pytest.mark.parametrize("damage", ["torn", "foreign", "rows"])
def test_damaged_part_raises_error(opened: MinedIndex, tmp_path: Path, damage: str):
    mine(opened, write_lines(tmp_path / "pairs.jsonl", pairs_by_id()), tmp_path / "out")
    part = tmp_path / "out" / part_name(3)
    if damage == "torn":
        part.write_bytes(part.read_bytes()[:-10])
    elif damage == "foreign":
        pq.write_table(pa.table({"a": [1]}), part)
    else:
        pq.write_table(pq.read_table(part).slice(1), part)
    with pytest.raises(ArtifactError, match=r"part-000003\.parquet .*delete it, then run again"):
        MINED.read(Store(str(tmp_path / "out")), 3)
