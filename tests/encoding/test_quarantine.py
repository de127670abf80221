from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.corpus.rows import row_schema
from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.quarantine import (
    PARTITION,
    QUARANTINE_SCHEMA,
    committed_files,
    create_quarantine,
    quarantine_folder,
    quarantined_by_reason,
    write_quarantine,
)
from lsr_prod.storage import Store
from lsr_prod.tables import Sink
from tests.encoding.tables import make_tables, make_wave, newest, read


def test_bad_rows_name_their_source_and_lie_in_its_order(tmp_path: Path):
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


@pytest.mark.parametrize("sink", ["delta", "parquet"])
def test_rows_are_counted_by_plan_and_wave_and_only_once_committed(tmp_path: Path, sink: Sink):
    table, quarantine = make_tables(tmp_path, sink)
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    for wave, bad in enumerate(["xy", "", "z"]):
        assert committer.commit(make_wave(table, quarantine, wave, str(wave), bad))
    make_wave(table, quarantine, 3, "3", "lost")  # written and not committed
    found = newest(quarantine)
    assert [len(committed_files(found, "p", wave)) for wave in range(4)] == [1, 0, 1, 0]
    assert len(committed_files(found, "p")) == 2
    assert committed_files(found, "q") == []
    assert [quarantined_by_reason(quarantine, "p", waves).total() for waves in range(5)] == [0, 2, 2, 3, 3]
    assert quarantined_by_reason(quarantine, "q", 9).total() == 0
    assert sorted(row["detail"] for row in read(quarantine)) == ["x", "y", "z"]
    assert [file.partition for file in found.files()] == [{"plan": "p", "wave": "0"}, {"plan": "p", "wave": "2"}]


def test_where_no_quarantine_is_nothing_is_bad(tmp_path: Path):
    store = Store(str(tmp_path / "q"))
    assert quarantined_by_reason(store, "p", 9).total() == 0
    assert create_quarantine(store, "parquet").partition_by == PARTITION
