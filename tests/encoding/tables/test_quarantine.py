from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.corpus.source_rows import BadRow, row_schema
from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.tables import quarantine_rows, read_all_rows, write_part
from lsr_prod.encoding.tables.quarantine_rows import (
    PART_SCHEMA,
    PARTITION,
    QUARANTINE_SCHEMA,
    BadRowWriter,
    committed_files,
    create_quarantine,
    quarantine_folder,
    quarantined_by_reason,
    write_quarantine,
)
from lsr_prod.storage import Store
from tests.encoding.made_tables import make_tables, make_wave, newest, read


def test_part_has_the_rows_in_source_order_and_is_named_by_content(tmp_path: Path):
    sources = ["s3://c/a.jsonl", "/c/b.parquet"]
    rows = [
        {
            "file": file,
            "position": position,
            "reason": "empty_text",
            "source_key": 7,
            "doc_id": f"{file}.{position}",
            "raw": "r",
            "source": sources[file],
        }
        for file, position in [(1, 5), (0, 70), (1, 2), (0, 8)]
    ]
    table = pa.Table.from_pylist(rows, schema=row_schema(["title"]))
    part = write_quarantine(Store(str(tmp_path)), "p", 3, table)
    assert Path(part.path).parent.as_posix() == quarantine_folder("p", 3) == "plan=p/wave=3"
    found = pq.read_table(tmp_path / part.path, partitioning=None)
    assert found.column_names == [name for name in QUARANTINE_SCHEMA.names if name not in ("plan", "wave")]
    assert [(row["source"], row["position"]) for row in found.to_pylist()] == [
        ("s3://c/a.jsonl", 8), ("s3://c/a.jsonl", 70), ("/c/b.parquet", 2), ("/c/b.parquet", 5),
    ]  # fmt: skip
    shuffled = table.take([2, 0, 3, 1])
    assert write_quarantine(Store(str(tmp_path)), "p", 3, shuffled) == part


def test_only_committed_rows_are_counted_by_plan_and_wave(tmp_path: Path):
    table, bad_rows = make_tables(tmp_path)
    committer = Committer(take_epoch(table, "p", []), table, bad_rows)
    for wave, bad in enumerate(["xy", "", "z"]):
        assert committer.commit(make_wave(table, bad_rows, wave, str(wave), bad))
    make_wave(table, bad_rows, 3, "3", "lost")  # written and not committed
    found = newest(bad_rows)
    assert [len(committed_files(found, "p", [wave])) for wave in range(4)] == [1, 0, 1, 0]
    assert len(committed_files(found, "p", range(4))) == 2
    assert committed_files(found, "q", range(4)) == []
    assert [quarantined_by_reason(bad_rows, "p", waves)[0].total() for waves in range(5)] == [0, 2, 2, 3, 3]
    assert quarantined_by_reason(bad_rows, "q", 9)[0].total() == 0
    assert sorted(row["detail"] for row in read(bad_rows)) == ["x", "y", "z"]
    assert [file.partition for file in found.files()] == [{"plan": "p", "wave": "0"}, {"plan": "p", "wave": "2"}]


def test_absent_quarantine_counts_no_rows(tmp_path: Path):
    store = Store(str(tmp_path / "q"))
    assert quarantined_by_reason(store, "p", 9) == ({}, 0)
    assert create_quarantine(store).partition_by == PARTITION


def test_unread_bytes_of_all_parts_are_added_up(tmp_path: Path):
    _, bad_rows = make_tables(tmp_path)
    writer = BadRowWriter(bad_rows, "p", 0)
    for unread in (7, 0, 5):
        row = BadRow("damaged_file", "no end", None, "", unread=unread)
        writer.add(row, ordinal=0, key=1, source="s", position=unread)
    writer.flush()
    (part,) = writer.parts
    assert read_all_rows(bad_rows, part.path)["unread_bytes"].to_pylist() == [None, 5, 7]
    other = write_part(bad_rows, "plan=p/wave=0", read_all_rows(bad_rows, part.path), "other")
    values = {"plan": "p", "wave": "0"}
    newest(bad_rows).commit([(part, values), (other, values)], [], app="p", version=0, epoch=1)
    assert quarantined_by_reason(bad_rows, "p", 1) == ({"damaged_file": 6}, 24)


def test_bad_row_writer_keeps_every_row_whatever_the_size_of_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = [(BadRow("empty_text", f"{i}", None, "r" * (i % 7)), i % 3, 10 * i) for i in range(40)]
    found = []
    for held in (1, 60, 10**6):
        monkeypatch.setattr(quarantine_rows, "_HELD_BYTES", held)
        writer = BadRowWriter(Store(str(tmp_path / str(held))), "p", 2)
        for row, ordinal, position in rows:
            writer.add(row, ordinal=ordinal, key=ordinal - 1, source=f"s{ordinal}", position=position)
        writer.flush()
        writer.flush()
        assert writer.reasons == {"empty_text": 40}
        assert (len(writer.parts) > 1) == (held < 10**6)
        parts = [read_all_rows(Store(str(tmp_path / str(held))), part.path) for part in writer.parts]
        assert all(part.schema.equals(PART_SCHEMA) for part in parts)
        found.append(sorted(pa.concat_tables(parts).to_pylist(), key=lambda row: row["position"]))
    assert found[0] == found[1] == found[2]
    assert [(row["detail"], row["source_file"], row["position"]) for row in found[0]] == [
        (row.detail, ordinal - 1, position) for row, ordinal, position in rows
    ]
