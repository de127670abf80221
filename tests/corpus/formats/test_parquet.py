from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.pinned_file import WHOLE, Slice
from lsr_prod.corpus.read import Reader


def test_times_of_spark_outside_the_years_of_nanoseconds_are_read(tmp_path: Path):
    times = [datetime(1, 1, 1), datetime(2026, 1, 2, 3, 4, 5, 678), datetime(9999, 12, 31)]
    table = pa.table({"_id": ["a", "b", "c"], "text": ["x"] * 3, "at": pa.array(times, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    source = SourceSettings(paths=[str(tmp_path)], stored_fields=["at"])
    (file,) = resolve_source(source, {})
    (rows,) = Reader(source, 1, {}).read(Slice(file, 0, 0, WHOLE, 0, file.size))
    assert rows["stored.at"].to_pylist() == ["0001-01-01T00:00:00", "2026-01-02T03:04:05.000678", "9999-12-31T00:00:00"]
