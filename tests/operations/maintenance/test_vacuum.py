"""A vacuum deletes only old files that no kept version names."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lsr_prod.encoding.commit.committer import Committer
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.commit.markers import mark_finished
from lsr_prod.encoding.tables import open_table
from lsr_prod.errors import ArtifactError, StorageError
from lsr_prod.operations.maintenance.compact import compact
from lsr_prod.operations.maintenance.vacuum import paths_in_markers, vacuum
from lsr_prod.storage import Store
from tests.encoding.made_tables import as_wave, ids_of, make_cell, make_tables, make_wave, newest

DAY = 86_400.0


def age(folder: Path, days: float = 30) -> None:
    """Set the modification time of every file to ``days`` ago."""
    when = time.time() - days * DAY
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (when, when))


def two_waves(folder: Path) -> tuple[Store, Store]:
    table, quarantine = make_tables(folder)
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    for wave, ids in enumerate("ab"):
        assert committer.commit(make_wave(table, quarantine, wave, ids, "x"))
    return table, quarantine


def test_vacuum_deletes_unnamed_old_files_and_keeps_named_and_young_ones(tmp_path: Path):
    table, quarantine = two_waves(tmp_path)
    lost = make_cell(table, quarantine, 2, "lost", "y")
    folder = Path(table.uri)
    draft = folder / "bucket=0" / f".part-{'a' * 64}.parquet.{'b' * 32}.tmp"
    draft.write_bytes(b"half")
    (gone,) = make_wave(table, quarantine, 0, "a", "x").cells  # of a committed wave
    mark_finished(table, quarantine, "p", 0, gone)
    marker = folder / "_lsr_prod" / "done" / "p" / "0" / "0.json"
    foreign = folder / "bucket=0" / "part-00000-of-spark.parquet"
    foreign.write_bytes(b"not ours")
    age(tmp_path)
    young = make_cell(table, quarantine, 3, "young")
    listed = vacuum(table, DAY, dry_run=True)
    names = {str(path.relative_to(folder)) for path in (draft, marker)} | {lost.parts[0].path}
    assert {entry.name for entry in listed.entries} == names
    assert listed.entries[0].name.startswith("_lsr_prod/done/")
    assert draft.exists()
    before = set(store_names(table))
    assert vacuum(table, DAY) == listed
    assert before - set(store_names(table)) == names
    assert young.parts[0].path in store_names(table)
    assert ids_of(table) == ["a", "b"]
    assert lost.quarantine
    assert [entry.name for entry in vacuum(quarantine, DAY).entries] == [lost.quarantine.path]
    assert vacuum(table, DAY).entries == ()


def store_names(store: Store) -> list[str]:
    return store.names()


def test_vacuum_deletes_replaced_parts_once_no_kept_version_names_them(tmp_path: Path):
    table, _ = two_waves(tmp_path)
    old = [file.path for file in newest(table).files()]
    age(tmp_path)
    compact(table, 1_000_000)
    assert vacuum(table, DAY).entries == ()  # version 2 was the newest one until the compaction
    age(tmp_path)
    assert vacuum(table, DAY, keep_versions=[2]).entries == ()
    assert [entry.name for entry in vacuum(table, DAY, keep_versions=[1]).entries] == old[:0] + [
        path for path in old if path not in {file.path for file in open_table(table, 1).files()}
    ]
    assert len(vacuum(table, DAY).entries) == 1
    assert ids_of(table) == ["a", "b"]
    with pytest.raises(ArtifactError, match=r"version 99 .* cannot be read|has no version 99"):
        vacuum(table, DAY, keep_versions=[99])


def test_vacuum_keeps_parts_added_and_removed_within_the_retention(tmp_path: Path):
    table, quarantine = two_waves(tmp_path)
    age(tmp_path)
    between = make_cell(table, quarantine, 0, "c", cell=0).parts[0]
    newest(table).commit([(between, {"bucket": "0"})], [], app="x", version=0, epoch=1)
    newest(table).commit([], [between.path], app="x", version=1, epoch=1)
    path = Path(table.uri) / between.path
    os.utime(path, (1, 1))  # as if an older attempt had written it
    assert vacuum(table, DAY).entries == ()
    assert path.exists()


def test_vacuum_keeps_a_part_that_is_reused_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table, quarantine = make_tables(tmp_path)
    make_cell(table, quarantine, 0, "a")
    age(tmp_path)
    whole = Store.entry

    def reuse_part(store: Store, name: str):
        if "/part-" in name:
            monkeypatch.undo()
            make_cell(table, quarantine, 0, "a")  # a resumed attempt makes the same part
        return whole(store, name)

    monkeypatch.setattr(Store, "entry", reuse_part)
    assert len(vacuum(table, DAY).entries) == 1
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    assert committer.commit(as_wave(0, make_cell(table, quarantine, 0, "a")))
    assert ids_of(table) == ["a"]


def test_vacuum_keeps_young_files_when_the_local_clock_is_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table, quarantine = make_tables(tmp_path)
    make_cell(table, quarantine, 0, "a")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 30 * DAY)
    assert len(vacuum(table, DAY, dry_run=True).entries) == 1  # a dry run writes nothing and uses the local clock
    assert vacuum(table, DAY).entries == ()


def test_vacuum_deletes_nothing_when_a_commit_is_missing(tmp_path: Path):
    table, quarantine = two_waves(tmp_path)
    make_cell(table, quarantine, 2, "c")
    age(tmp_path)
    (Path(table.uri) / "_delta_log" / f"{1:020d}.json").unlink()
    before = table.names()
    with pytest.raises(StorageError, match="found gap"):
        vacuum(table, DAY)
    assert table.names() == before
    with pytest.raises(ArtifactError, match="is not a table"):
        vacuum(Store(str(tmp_path / "none")), DAY)


def test_vacuum_deletes_a_marked_part_only_after_its_marker(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    (cell,) = make_wave(table, quarantine, 0, "ab", "x").cells
    mark_finished(table, quarantine, "p", 0, cell)
    age(tmp_path)
    assert cell.quarantine
    assert vacuum(quarantine, DAY, marked=paths_in_markers(table)).entries == ()
    (marker,) = vacuum(table, DAY).entries
    assert marker.name.startswith("_lsr_prod/done/")
    assert [entry.name for entry in vacuum(table, DAY).entries] == [cell.parts[0].path]
    assert [entry.name for entry in vacuum(quarantine, DAY).entries] == [cell.quarantine.path]


def test_vacuum_deletes_unnamed_parts_in_an_object_store(s3_options: dict[str, str], tmp_path: Path):
    from lsr_prod.encoding.tables.sparse_table import create_sparse_table
    from tests.encoding.made_tables import PROPERTIES

    table = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    create_sparse_table(table, PROPERTIES, "p")
    lost = make_cell(table, table, 0, "a").parts[0].path
    assert vacuum(table, DAY).entries == ()
    time.sleep(2.1)  # the endpoint reports whole seconds
    assert [entry.name for entry in vacuum(table, 1.0).entries] == [lost]
    assert table.entry(lost) is None


def test_vacuum_makes_requests_of_many_files_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table, quarantine = make_tables(tmp_path)
    for cell in range(6):
        mark_finished(table, quarantine, "p", 0, make_cell(table, quarantine, 0, "ab"[: cell % 2 + 1], cell=cell))
    for number in range(6):
        Path(table.uri, "bucket=0", f"part-{number:064x}.parquet").write_bytes(b"lost")
    age(tmp_path)
    together = threading.Barrier(6, timeout=60)

    def waiting(whole: Callable[[Store, str], object], word: str) -> Callable[[Store, str], object]:
        def wait_for_others(store: Store, name: str) -> object:
            if word in name:
                together.wait()
            return whole(store, name)

        return wait_for_others

    monkeypatch.setattr(Store, "get", waiting(Store.get, "/done/"))
    monkeypatch.setattr(Store, "entry", waiting(Store.entry, "/part-0"))
    monkeypatch.setattr(Store, "delete", waiting(Store.delete, "/part-0"))
    assert vacuum(table, DAY).counts() == {"markers": 6, "parts": 6}
