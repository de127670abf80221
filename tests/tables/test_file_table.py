import json
import sys

import pyarrow as pa
import pytest

from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.tables import Part, Table, TableFile, create_table, open_table
from lsr_prod.tables import parquet as parquet_sink
from lsr_prod.tables.deletion_vector import DeletionVector
from lsr_prod.tables.file_table import (
    bucket_numbers,
    file_schema,
    files_of_buckets,
    files_with_paths,
    files_without_paths,
    to_files,
    total,
)

SCHEMA = pa.schema([("doc_id", pa.string()), ("bucket", pa.string())])
STATS = '{"numRecords":3}'


def part(number: int) -> tuple[Part, dict[str, str | None]]:
    bucket = number % 4
    return Part(f"bucket={bucket}/part-{number:06d}.parquet", 10, 3, STATS), {"bucket": str(bucket)}


def table_of(store: Store, sink: str, count: int) -> Table:
    table = create_table(store, sink, SCHEMA, ["bucket"], {})
    table.commit([part(number) for number in range(count)], [], app="a", version=0, epoch=1)
    found = open_table(store)
    assert found is not None
    return found


@pytest.mark.parametrize("sink", ["delta", "parquet"])
def test_snapshot_lists_its_files_as_arrow_columns_sorted_by_path(sink, tmp_path):
    table = table_of(Store(str(tmp_path)), sink, 10)
    files = table.file_table()
    assert files.schema == file_schema(["bucket"])
    assert to_files(files) == table.files() == sorted(table.files(), key=lambda file: file.path)
    assert (total(files, "rows"), total(files, "size")) == (30, 100)
    assert files_of_buckets(files, [1, 3])["path"].to_pylist() == sorted(
        part(number)[0].path for number in range(10) if number % 2
    )
    path = part(7)[0].path
    assert to_files(files_with_paths(files, [path, "other"])) == [TableFile(path, 10, 3, {"bucket": "3"})]
    assert files_without_paths(files, [path]).num_rows == 9


def test_file_without_a_bucket_value_is_in_bucket_zero():
    files = pa.table(
        [["a", "b", "c"], [1, 1, 1], [None, 2, None], [None] * 3, [None, "", "5"]], schema=file_schema(["bucket"])
    )
    assert bucket_numbers(files).to_pylist() == [0, 0, 5]
    assert total(files, "rows") == 2


@pytest.mark.parametrize("sink", ["delta", "parquet"])
def test_commit_makes_no_object_per_committed_file(sink, tmp_path, monkeypatch):
    store = Store(str(tmp_path))
    table = table_of(store, sink, 2000)
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


def test_checkpoint_keeps_row_counts_and_partitions(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_sink, "CHECKPOINT_EVERY", 1)
    store = Store(str(tmp_path))
    table = table_of(store, "parquet", 5)
    assert any(name.endswith(".checkpoint.parquet") for name in store.names("_manifest"))
    assert to_files(table.file_table()) == [
        TableFile(one.path, 10, 3, values) for one, values in sorted(map(part, range(5)), key=lambda pair: pair[0].path)
    ]


def test_manifest_that_changes_an_unknown_file_is_an_error(tmp_path):
    store = Store(str(tmp_path))
    table_of(store, "parquet", 2)
    name = "_manifest/00000000000000000001.json"
    data = store.get(name)
    store.put_new("_manifest/00000000000000000002.json", data.replace(b'"removes":[]', b'"removes":["x"]'))
    with pytest.raises(ArtifactError, match="removes files that the table does not have"):
        open_table(store)
    store.delete("_manifest/00000000000000000002.json")
    commit = json.loads(data) | {"deletions": {"x": DeletionVector("u", "v", 1, 1, 1).to_delta()}}
    store.put_new("_manifest/00000000000000000002.json", json.dumps(commit).encode())
    with pytest.raises(ArtifactError, match="deletes rows of files that the table does not have"):
        open_table(store)
