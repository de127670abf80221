import pyarrow as pa
import pytest

from lsr_prod.corpus.filelist import (
    KEPT,
    READ,
    REMOVED,
    file_keys,
    file_of,
    files_digest,
    iterate_files,
    list_files,
    mark,
    relocate,
    with_location_facts,
    without_location_facts,
)
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.storage.deletion_vector import DeletionVector

FILES = [
    SourceFile("/c", "a.jsonl", "jsonl", 5, "t"),
    SourceFile("s3://x", "deep/p.parquet", "parquet", 7, "é", (("lang", None), ("d", "1"))),
    SourceFile("/c", "b.csv.gz", "csv.gz", 0, ""),
]


@pytest.mark.parametrize("copies", [0, 1, 9000])  # 9,000 rows are several batches
def test_files_of_a_list_round_trip_with_their_keys(copies: int):
    vector = DeletionVector("u", "vBn[lx{q8@P<9BNH/isA", 1, 36, 2)
    columns = (("_id", 1), ("text", "col-x"))
    files = [*FILES, SourceFile("/t", "p.parquet", "parquet", 7, "t", (), columns, vector)]
    listed = list_files(file for _ in range(copies) for file in files)
    assert list(iterate_files(listed)) == list(enumerate(files * copies))
    assert file_keys(listed).tolist() == [file.key for file in files] * copies


def test_files_are_selected_by_state_with_their_ordinals():
    listed = mark(list_files(FILES), [KEPT, READ, REMOVED])
    assert list(iterate_files(listed)) == [(1, FILES[1])]
    assert file_of(listed.slice(2).to_pylist()[0]) == FILES[2]


def test_digest_depends_on_order_and_state_but_not_on_chunks():
    listed = list_files(FILES)
    digests = {
        files_digest(listed),
        files_digest(list_files(FILES[::-1])),
        files_digest(list_files(FILES[:2])),
        files_digest(mark(listed, [READ, READ, KEPT])),
    }
    assert len(digests) == 4
    assert files_digest(list_files([])) not in digests
    assert files_digest(listed.slice(1)) == files_digest(list_files(FILES[1:]))


def test_location_facts_are_kept_but_neither_stored_nor_identified():
    local = SourceFile("/c", "a.jsonl", "jsonl", 5, "t", mtime_ns=7, inode=2**64 - 1)
    remote = SourceFile("s3://x", "b.jsonl", "jsonl", 5, "e", etag='"e"')
    listed = list_files([local, remote])

    def facts(files: pa.Table) -> list[tuple]:
        return [(file.etag, file.mtime_ns, file.inode) for _, file in iterate_files(files)]

    assert facts(listed) == [("", 7, 2**64 - 1), ('"e"', 0, 0)]
    stored = without_location_facts(listed)
    assert {"etag", "mtime_ns", "inode"}.isdisjoint(stored.column_names)
    assert facts(with_location_facts(stored)) == [("", 0, 0)] * 2
    assert files_digest(with_location_facts(stored)) == files_digest(listed)
    assert facts(relocate(with_location_facts(stored), listed.slice(0, 1))) == [("", 7, 2**64 - 1), ("", 0, 0)]


def test_stored_files_of_an_earlier_release_are_files_without_deleted_rows():
    listed = list_files(FILES)
    earlier = without_location_facts(listed).drop_columns(["columns", "deleted"])
    assert with_location_facts(earlier).schema == listed.schema
    assert list(iterate_files(with_location_facts(earlier))) == list(enumerate(FILES))
