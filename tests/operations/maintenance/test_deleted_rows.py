"""Compaction drops deleted rows, a purge drops all of them, and a vacuum treats deletion vectors like parts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lsr_prod.config import MaintainSettings
from lsr_prod.encoding.tables import Part, read_part
from lsr_prod.encoding.tables.live_rows import total_live_rows, vector_files
from lsr_prod.encoding.tables.sparse_table import table_digest
from lsr_prod.operations.maintenance import maintain
from lsr_prod.operations.maintenance.compact import Merge, compact, merge_parts, plan_merges
from lsr_prod.operations.maintenance.vacuum import vacuum
from lsr_prod.storage import Store, deletion_vector
from tests.encoding.made_tables import newest
from tests.encoding.tables.deletions import delete_ids
from tests.operations.maintenance.test_compact import encoded
from tests.operations.maintenance.test_job import deployment
from tests.operations.maintenance.test_vacuum import DAY, age

LARGE = 1_000_000
NEVER_SMALL = 1  # bytes: no part is below half of it


@pytest.fixture
def vectors_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_vector, "_INLINE_BYTES", 0)


def documents(store: Store) -> str:
    files = newest(store).files()
    return "".join(sorted(i for file in files for i in read_part(store, file)["doc_id"].to_pylist()))


def test_merged_part_has_no_deleted_rows(tmp_path: Path):
    table, _ = encoded(tmp_path, ["abcd", "efgh"])
    delete_ids(table, "bg")
    digest = table_digest(table.uri)
    done = compact(table, LARGE)
    assert (done.parts_merged, done.parts_after, done.deleted_rows_dropped, done.deleted_rows_left) == (2, 1, 2, 0)
    (file,) = newest(table).files()
    assert (file.deleted, file.rows, documents(table)) == (None, 6, "acdefh")
    assert table_digest(table.uri) == table_digest(table.uri, verify=True) == digest


def test_part_is_written_again_when_half_of_its_rows_are_deleted(tmp_path: Path):
    table, _ = encoded(tmp_path, ["abcd"])
    delete_ids(table, "b")
    assert compact(table, NEVER_SMALL).parts_merged == 0
    assert compact(table, LARGE).parts_merged == 0  # it is alone
    delete_ids(table, "c")
    planned, done = compact(table, NEVER_SMALL, dry_run=True), compact(table, NEVER_SMALL)
    for one in (planned, done):
        assert (
            one.parts_before,
            one.parts_after,
            one.parts_merged,
            one.deleted_rows_dropped,
            one.deleted_rows_left,
        ) == (1, 1, 1, 2, 0)
    assert (documents(table), newest(table).files()[0].rows) == ("ad", 2)


def test_part_of_which_all_rows_are_deleted_is_removed(tmp_path: Path):
    table, _ = encoded(tmp_path, ["ab", "cd"])
    delete_ids(table, "abcd")
    assert compact(table, NEVER_SMALL).parts_after == 0
    assert (newest(table).files(), table_digest(table.uri)) == ([], "0" * 64)


def test_purge_writes_every_part_with_deleted_rows_again(tmp_path: Path):
    table, _ = encoded(tmp_path, ["abcdefgh x", "ijkl"])
    delete_ids(table, "a")
    untouched = {file.path for file in newest(table).files() if file.deleted is None}
    done = compact(table, NEVER_SMALL, purge=True)
    assert (done.parts_merged, done.deleted_rows_dropped, done.deleted_rows_left) == (1, 1, 0)
    assert untouched < {file.path for file in newest(table).files()}
    assert documents(table) == "bcdefghijklx"
    assert compact(table, NEVER_SMALL, purge=True).commits == 0


def test_deleted_rows_do_not_count_in_the_size_of_a_part(tmp_path: Path):
    table, _ = encoded(tmp_path, ["abcdefghij", "klmnop"])
    target = 2 * max(file.size for file in newest(table).files())
    assert plan_merges(newest(table).file_table(), target) == []
    delete_ids(table, "abcd")
    (merge,) = plan_merges(newest(table).file_table(), target)
    assert (len(merge.files), merge.deleted) == (2, 4)


def test_merge_is_dropped_if_rows_of_its_parts_were_deleted_meanwhile(tmp_path: Path):
    table, _ = encoded(tmp_path, ["abcd ", "efgh "])

    def delete_then_yield(store: Store, merges: Sequence[Merge]) -> Iterator[tuple[Merge, Part | None]]:
        made = [(merge, merge_parts(store, merge)) for merge in merges]
        delete_ids(table, "c")
        yield from made

    delete_ids(table, "a")
    done = compact(table, LARGE, run=delete_then_yield)
    assert (done.merges_skipped, done.commits, done.deleted_rows_left) == (1, 0, 2)
    assert documents(table) == "bdefgh"
    assert compact(table, LARGE).deleted_rows_dropped == 2
    assert documents(table) == "bdefgh"


def test_vacuum_keeps_vectors_of_kept_versions(tmp_path: Path, vectors_in_files: None):
    table, _ = encoded(tmp_path, ["abcd", "efgh"])
    delete_ids(table, "a")
    kept = newest(table)
    delete_ids(table, "b")
    between = vector_files(newest(table).file_table())
    delete_ids(table, "c")
    foreign = Path(table.uri) / "deletion_vector_of_another_program.bin"
    foreign.write_bytes(b"x")
    assert vacuum(table, DAY).entries == ()  # all are young
    age(tmp_path)
    found = vacuum(table, DAY, keep_versions=[kept.version])
    assert {entry.name for entry in found.entries} == between - vector_files(newest(table).file_table())
    assert found.counts() == {"deletion_vectors": 1}
    assert documents(table) == "defgh"
    assert len(read_part(table, next(file for file in kept.files() if file.deleted))) == 3
    assert foreign.exists()
    assert vacuum(table, DAY).counts() == {"deletion_vectors": 1}


def test_document_is_in_no_file_after_purge_and_vacuum(tmp_path: Path, ray_local: None):
    table, _ = encoded(tmp_path, ["abcdefgh ijkl"])
    before = {file.path for file in newest(table).files()}
    delete_ids(table, "a")
    digest = table_digest(table.uri)
    first = maintain(deployment(table, target_megabytes=1, purge=True)).result()
    assert (first["deleted_rows_dropped"], first["deleted_rows_left"]) == (1, 0)
    age(tmp_path)
    assert maintain(deployment(table, purge=True)).result()["garbage_by_kind"]["parts"] == 1
    assert sum((Path(table.uri) / path).exists() for path in before) == 1  # the part of the other bucket
    assert (table_digest(table.uri), total_live_rows(newest(table).file_table())) == (digest, 11)


def test_purge_without_compaction_is_refused():
    with pytest.raises(ValueError, match=r"set maintain\.compact to true, or purge to false"):
        MaintainSettings(table="t", compact=False, purge=True)
