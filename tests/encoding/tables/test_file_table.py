import sys

import pyarrow as pa

from lsr_prod.encoding.tables import Part, Table, TableFile, create_table, open_table
from lsr_prod.encoding.tables.live_rows import (
    bucket_numbers,
    file_schema,
    files_of_buckets,
    files_with_paths,
    to_files,
    total,
)
from lsr_prod.storage import Store

SCHEMA = pa.schema([("doc_id", pa.string()), ("bucket", pa.string())])
STATS = '{"numRecords":3}'


def part(number: int) -> tuple[Part, dict[str, str | None]]:
    bucket = number % 4
    return Part(f"bucket={bucket}/part-{number:06d}.parquet", 10, 3, STATS), {"bucket": str(bucket)}


def table_of(store: Store, count: int) -> Table:
    table = create_table(store, SCHEMA, ["bucket"], {})
    table.commit([part(number) for number in range(count)], [], app="a", version=0, epoch=1)
    found = open_table(store)
    assert found is not None
    return found


def test_snapshot_lists_its_files_as_arrow_columns_sorted_by_path(tmp_path):
    table = table_of(Store(str(tmp_path)), 10)
    files = table.file_table()
    assert files.schema == file_schema(["bucket"])
    assert to_files(files) == table.files() == sorted(table.files(), key=lambda file: file.path)
    assert (total(files, "rows"), total(files, "size")) == (30, 100)
    assert files_of_buckets(files, [1, 3])["path"].to_pylist() == sorted(
        part(number)[0].path for number in range(10) if number % 2
    )
    path = part(7)[0].path
    assert to_files(files_with_paths(files, [path, "other"])) == [TableFile(path, 10, 3, {"bucket": "3"})]


def test_file_without_a_bucket_value_is_in_bucket_zero():
    files = pa.table(
        [["a", "b", "c"], [1, 1, 1], [None, 2, None], [None] * 3, [None, "", "5"]], schema=file_schema(["bucket"])
    )
    assert bucket_numbers(files).to_pylist() == [0, 0, 5]
    assert total(files, "rows") == 2


def test_commit_makes_no_object_per_committed_file(tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    table = table_of(store, 2000)
    made = 0
    module = sys.modules[TableFile.__module__]

    def counted(*args):
        nonlocal made
        made += 1
        return TableFile(*args)

    monkeypatch.setattr(module, "TableFile", counted)
    table.commit([part(5000)], [part(7)[0].path], app="a", version=1, epoch=1)
    again = open_table(store)
    assert again.file_table().num_rows == 2000
    assert made <= 1
