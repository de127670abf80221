from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from lsr_prod.encoding.commit import Committer
from lsr_prod.encoding.fence import take_epoch
from lsr_prod.encoding.quarantine import (
    QUARANTINE_SCHEMA,
    committed_files,
    quarantine_folder,
    quarantined_by_reason,
    write_quarantine,
)
from lsr_prod.encoding.rows import row_schema
from lsr_prod.storage import Store
from tests.encoding.tables import make_tables, make_wave


def test_bad_rows_name_their_source_and_lie_in_its_order(tmp_path: Path):
    rows = [
        {"file": file, "position": position, "reason": "empty_text", "doc_id": f"{file}.{position}", "raw": "r"}
        for file, position in [(1, 5), (0, 70), (1, 2), (0, 8)]
    ]
    table = pa.Table.from_pylist(rows, schema=row_schema(["title"]))
    part = write_quarantine(Store(str(tmp_path)), "p", 3, table, ["s3://c/a.jsonl", "/c/b.parquet"])
    assert Path(part.path).parent.as_posix() == quarantine_folder("p", 3) == "plan=p/wave=3"
    found = pq.read_table(tmp_path / part.path, partitioning=None)
    assert found.column_names == [name for name in QUARANTINE_SCHEMA.names if name not in ("plan", "wave")]
    assert [(row["source"], row["position"]) for row in found.to_pylist()] == [
        ("s3://c/a.jsonl", 8), ("s3://c/a.jsonl", 70), ("/c/b.parquet", 2), ("/c/b.parquet", 5),
    ]  # fmt: skip
    shuffled = table.take([2, 0, 3, 1])
    assert write_quarantine(Store(str(tmp_path)), "p", 3, shuffled, ["s3://c/a.jsonl", "/c/b.parquet"]) == part


def test_rows_are_counted_by_plan_and_wave_and_only_once_committed(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    for wave, bad in enumerate(["xy", "", "z"]):
        assert committer.commit(make_wave(table, quarantine, wave, str(wave), bad))
    make_wave(table, quarantine, 3, "3", "lost")  # written and not committed
    found = DeltaTable(quarantine.location)
    assert [len(committed_files(found, "p", wave)) for wave in range(4)] == [1, 0, 1, 0]
    assert len(committed_files(found, "p")) == 2
    assert committed_files(found, "q") == []
    assert [quarantined_by_reason(quarantine, found, "p", waves).total() for waves in range(5)] == [0, 2, 2, 3, 3]
    rows = found.to_pyarrow_table().to_pylist()
    assert sorted((row["plan"], row["wave"], row["detail"]) for row in rows) == [
        ("p", 0, "x"), ("p", 0, "y"), ("p", 2, "z"),
    ]  # fmt: skip
