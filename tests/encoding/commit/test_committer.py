"""Races that kill tests cannot time: another attempt acts exactly between the check and the commit of a committer."""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lsr_prod.encoding.commit.committer import Committer, check_cell, check_for_commit, waves_done
from lsr_prod.encoding.commit.fence import Epoch, take_epoch
from lsr_prod.encoding.results import CellResult, Counts, WaveResult
from lsr_prod.encoding.tables import Table, create_table
from lsr_prod.encoding.tables.deletions import Deletion, write_deletions
from lsr_prod.errors import (
    CommitError,
    FencedError,
    IncompleteWaveError,
    StaleWaveError,
    StorageError,
    TableConflictError,
)
from lsr_prod.storage import Store
from tests.encoding.made_tables import as_wave, bad_rows, ids_of, make_cell, make_tables, make_wave, newest, recount


@dataclass(frozen=True, slots=True)
class Interrupted(Epoch):
    """Epoch that runs the next of ``events`` after each check."""

    events: Iterator[Callable[[], object]]

    def check(self) -> None:
        Epoch.check(self)
        next(self.events, lambda: None)()


def interrupted(table: Store, quarantine: Store, *events: Callable[[], object]) -> Committer:
    epoch = take_epoch(table, "p", [])
    return Committer(Interrupted(epoch.store, epoch.plan, epoch.number, iter(events)), table, quarantine)


def rival_commits(table: Store, quarantine: Store, result: WaveResult) -> Callable[[], bool]:
    return lambda: Committer(take_epoch(table, "p", []), table, quarantine).commit(result)


@pytest.mark.parametrize("bad", ["", "xy"])
def test_commit_of_a_rival_between_check_and_commit_duplicates_nothing(tmp_path: Path, bad: str):
    table, quarantine = make_tables(tmp_path)
    result = make_wave(table, quarantine, 0, "abc", bad)
    committer = interrupted(table, quarantine, rival_commits(table, quarantine, result))
    assert committer.commit(result) is False
    assert (ids_of(table), bad_rows(quarantine)) == (["a", "b", "c"], len(bad))


def test_rival_between_the_two_commits_replaces_the_quarantine(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    ours = make_wave(table, quarantine, 0, "ab", "cx")  # c failed in this attempt only
    theirs = make_wave(table, quarantine, 0, "abc", "x")
    committer = interrupted(table, quarantine, lambda: None, rival_commits(table, quarantine, theirs))
    assert committer.commit(ours) is False
    assert (ids_of(table), bad_rows(quarantine)) == (["a", "b", "c"], 1)


def test_attempt_overtaken_between_check_and_commit_is_fenced_at_the_next_wave(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    first, second = make_wave(table, quarantine, 0, "a"), make_wave(table, quarantine, 1, "b")
    committer = interrupted(table, quarantine, lambda: None, rival_commits(table, quarantine, first))
    assert committer.commit(first) is True
    assert committer.commit(second) is True  # the rival found wave 0 committed and has committed nothing since
    with pytest.raises(FencedError):
        committer.commit(make_wave(table, quarantine, 2, "c"))
    assert ids_of(table) == ["a", "b"]


def test_newer_attempt_makes_a_stalled_commit_of_an_older_one_fail(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    ours = make_wave(table, quarantine, 0, "ab", "cx")  # c failed in this attempt only
    theirs = make_wave(table, quarantine, 0, "abc", "x")
    rival: list[Committer] = []

    def begin() -> None:  # the rival has fenced but not committed when the stalled attempt continues
        rival.append(Committer(take_epoch(table, "p", []), table, quarantine))
        rival[0].fence()

    stalled = interrupted(table, quarantine, lambda: None, begin)
    with pytest.raises(FencedError):
        stalled.commit(ours)
    assert ids_of(table) == []
    assert rival[0].commit(theirs) is True
    assert (ids_of(table), bad_rows(quarantine)) == (["a", "b", "c"], 1)


def test_stalled_quarantine_commit_fails_after_an_attempt_without_bad_rows(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    ours = make_wave(table, quarantine, 0, "ab", "c")  # c failed in this attempt only
    theirs = make_wave(table, quarantine, 0, "abc")

    def overtake() -> None:
        rival = Committer(take_epoch(table, "p", []), table, quarantine)
        rival.fence()
        assert rival.commit(theirs) is True

    assert interrupted(table, quarantine, overtake).commit(ours) is False
    assert (ids_of(table), bad_rows(quarantine)) == (["a", "b", "c"], 0)


def test_fence_adds_no_wave_and_is_refused_for_an_older_attempt(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    older, newer = (Committer(take_epoch(table, "p", []), table, quarantine) for _ in range(2))
    with pytest.raises(FencedError):
        older.fence()
    newer.fence()
    assert waves_done(newest(table), "p") == 0
    assert newer.commit(make_wave(table, quarantine, 0, "a")) is True
    newer.fence()
    assert waves_done(newest(table), "p") == 1
    assert newer.commit(make_wave(table, quarantine, 1, "b")) is True
    assert ids_of(table) == ["a", "b"]


def test_waves_are_counted_per_plan(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    assert waves_done(newest(table), "p") == 0
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    for wave, name in enumerate("abc"):
        assert committer.commit(make_wave(table, quarantine, wave, name, "x")) is True
        assert committer.commit(make_wave(table, quarantine, wave, name, "x")) is False
        assert waves_done(newest(table), "p") == wave + 1
    assert waves_done(newest(table), "q") == 0
    assert bad_rows(quarantine) == 3


def test_wave_of_bad_rows_only_or_of_no_rows_is_committed(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    assert committer.commit(make_wave(table, quarantine, 0, "", "xyz"))
    assert committer.commit(as_wave(1))
    assert committer.commit(make_wave(table, quarantine, 2, "a"))
    assert (ids_of(table), bad_rows(quarantine)) == (["a"], 3)


@pytest.mark.parametrize("kind", ["part", "quarantine"])
def test_truncated_part_of_either_table_is_refused(tmp_path: Path, kind: str):
    table, quarantine = make_tables(tmp_path)
    cell = make_cell(table, quarantine, 0, "a", "x")
    part = cell.parts[0] if kind == "part" else cell.quarantine
    assert part
    store = table if kind == "part" else quarantine
    path = Path(store.uri) / part.path
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CommitError, match=rf"bytes instead of {part.size}"):
        Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, cell))
    with pytest.raises(CommitError, match=rf"bytes instead of {part.size}"):
        check_cell(table, quarantine, cell)
    assert [newest(folder).version for folder in (table, quarantine)] == [0, 0]


def test_wave_result_sums_its_cells_and_refuses_a_wrong_count(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    one = make_cell(table, quarantine, 0, "ab", "x", cell=0)
    other = make_cell(table, quarantine, 0, "c", "yz", cell=1)
    result = as_wave(0, one, other)
    result.check()
    reasons = {"broken_json": 3}
    assert result.counts == Counts(rows_in=6, rows_out=3, quarantined_by_reason=reasons)
    wrong = [
        recount(one, rows_in=2),
        recount(one, rows_out=3),
        recount(replace(one, quarantine=None), quarantined_by_reason={}),
        recount(one, quarantined_by_reason={"broken_json": 2}),
        replace(one, parts=()),
        recount(one, superseded=1),
        recount(one, deleted=1),
        other,
    ]
    for cell in wrong:
        with pytest.raises(IncompleteWaveError, match=r"wave 0[:,] "):
            as_wave(0, cell, other).check()


def test_cells_of_one_bucket_become_parts_of_it(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    cells = [
        make_cell(table, quarantine, 0, name, cell=cell) for cell, name in [(0, "a"), (2, "c"), (4, "e"), (1, "b")]
    ]
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, *cells))
    assert ids_of(table) == ["a", "b", "c", "e"]
    assert sorted(file.partition["bucket"] for file in newest(table).files()) == ["0", "0", "0", "1"]


def deletion(table: Store, old: CellResult, *rows: int) -> tuple[Deletion, ...]:
    """Delete rows of the only part of a committed cell."""
    files = [file for file in newest(table).files() if file.path == old.parts[0].path]
    going = pa.table({"path": [files[0].path] * len(rows), "row": pa.array(rows, pa.int64())})
    return write_deletions(table, files, going)


def increment(table: Store, quarantine: Store, old: CellResult) -> CellResult:
    """An increment of the rows a, b and c: a stays, b is replaced, c deleted, d added."""
    new = make_cell(table, quarantine, 0, "bd", impact=3)
    return recount(new, deletions=deletion(table, old, 1, 2), superseded=1, deleted=1)


def test_increment_adds_and_deletes_rows_in_one_commit(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    old = make_cell(table, quarantine, 0, "abc")
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, old))
    wave = as_wave(0, increment(table, quarantine, old))
    assert wave.counts == Counts(rows_in=2, rows_out=2, superseded=1, deleted=1)
    committer = Committer(take_epoch(table, "q", []), table, quarantine)
    assert committer.commit(wave) is True
    assert committer.commit(wave) is False
    assert ids_of(table) == ["a", "b", "d"]
    assert newest(table).version == 2


def test_cells_of_one_bucket_delete_rows_of_one_part(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    old = make_cell(table, quarantine, 0, "abc")
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, old))
    one = recount(make_cell(table, quarantine, 0, "d", cell=0), deletions=deletion(table, old, 2), deleted=1)
    other = recount(make_cell(table, quarantine, 0, "b", cell=2), deletions=deletion(table, old, 1), superseded=1)
    same = replace(other, deletions=deletion(table, old, 2))
    committer = Committer(take_epoch(table, "q", []), table, quarantine)
    with pytest.raises(IncompleteWaveError, match="some of them are the same rows"):
        committer.commit(as_wave(0, one, same))
    assert committer.commit(as_wave(0, one, other)) is True
    assert ids_of(table) == ["a", "b", "d"]
    again = recount(make_cell(table, quarantine, 1, "e"), deletions=deletion(table, old, 0), deleted=1)
    assert committer.commit(as_wave(1, again)) is True
    assert ids_of(table) == ["b", "d", "e"]
    assert old.parts[0].path not in {file.path for file in newest(table).files()}  # no row of it is left


def test_row_that_the_part_does_not_have_is_not_deleted(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    old = make_cell(table, quarantine, 0, "a")
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, old))
    wrong = recount(make_cell(table, quarantine, 0, "d"), deletions=deletion(table, old, 0, 1), deleted=2)
    with pytest.raises(IncompleteWaveError, match=r"deletes 2 rows of .*, which has 1"):
        Committer(take_epoch(table, "q", []), table, quarantine).commit(as_wave(0, wrong))
    assert ids_of(table) == ["a"]


def test_damaged_deletion_vector_is_not_committed(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    ids = "".join(map(chr, range(0x4E00, 0x4E00 + 400)))
    old = make_cell(table, quarantine, 0, ids)
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, old))
    rows = range(0, 400, 2)
    cell = recount(make_cell(table, quarantine, 0, "d"), deletions=deletion(table, old, *rows), deleted=len(rows))
    (file,) = Path(table.uri).glob("deletion_vector_*.bin")
    content = file.read_bytes()
    file.write_bytes(content[:-5])
    committer = Committer(take_epoch(table, "q", []), table, quarantine)
    with pytest.raises(CommitError, match=r"deletion_vector_.* is damaged; restore it, or run the job again"):
        committer.commit(as_wave(0, cell))
    repaired = replace(cell, deletions=deletion(table, old, *rows))
    assert committer.commit(as_wave(0, repaired)) is True
    assert len(ids_of(table)) == 201
    assert file.read_bytes() == content[:-5]  # a delayed attempt may have damaged a file that others use


def test_wave_whose_parts_were_compacted_in_the_meantime_is_stale(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    old = make_cell(table, quarantine, 0, "abc")
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, old))
    wave = as_wave(0, increment(table, quarantine, old))
    compacted = make_cell(table, quarantine, 0, "abc", impact=9).parts[0]

    def compact() -> None:
        newest(table).commit([(compacted, {"bucket": "0"})], [old.parts[0].path], app="c", version=0, epoch=0)

    epoch = take_epoch(table, "q", [])
    committer = Committer(Interrupted(epoch.store, epoch.plan, epoch.number, iter([compact])), table, quarantine)
    with pytest.raises(StaleWaveError, match="wave 0 deletes rows of 1 parts"):
        committer.commit(wave)
    assert ids_of(table) == ["a", "b", "c"]


def test_commit_that_succeeded_but_reported_an_error_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table, quarantine = make_tables(tmp_path)
    result = make_wave(table, quarantine, 0, "a", "x")
    whole, told = Table.commit, set()

    def landed(self, *args, **kwargs):
        whole(self, *args, **kwargs)
        if self.store.uri not in told:
            told.add(self.store.uri)
            raise StorageError("the connection was lost")

    monkeypatch.setattr(Table, "commit", landed)
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(result) is False
    monkeypatch.undo()
    assert (ids_of(table), bad_rows(quarantine)) == (["a"], 1)
    assert len(told) == 2


def test_store_that_fails_every_try_raises_commit_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table, quarantine = make_tables(tmp_path)
    result = make_wave(table, quarantine, 0, "a")
    epoch = take_epoch(table, "p", [])

    def fail(*_: object, **__: object) -> None:
        raise DeltaError("no answer in time")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", fail)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(CommitError, match=r"wave 0 was refused 5 times \(.*\(no answer in time\); run the job again"):
        Committer(epoch, table, quarantine).commit(result)
    monkeypatch.undo()
    assert Committer(epoch, table, quarantine).commit(result) is True
    assert ids_of(table) == ["a"]


def test_parts_of_an_older_attempt_are_touched_before_their_commit(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    cell = make_cell(table, quarantine, 0, "a", "x")
    assert cell.quarantine
    paths = [Path(table.uri) / cell.parts[0].path, Path(quarantine.uri) / cell.quarantine.path]
    for path in paths:
        os.utime(path, (1, 1))
    epoch = take_epoch(table, "p", [])
    assert Committer(epoch, table, quarantine).commit(as_wave(0, cell))
    assert all(path.stat().st_mtime >= int(epoch.began()) for path in paths)


@pytest.mark.parametrize("kind", ["part", "quarantine", "vector"])
def test_only_old_files_are_touched_before_their_commit_and_a_deleted_one_is_an_error(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
):
    table, quarantine = make_tables(tmp_path)
    old = make_cell(table, quarantine, 0, "".join(map(chr, range(0x4E00, 0x4E00 + 400))))
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, old))
    rows = range(0, 400, 2)
    cell = recount(make_cell(table, quarantine, 0, "d", "x"), deletions=deletion(table, old, *rows), deleted=len(rows))
    (vector,) = Path(table.uri).glob("deletion_vector_*.bin")
    assert cell.quarantine
    files = {
        "part": Path(table.uri) / cell.parts[0].path,
        "quarantine": Path(quarantine.uri) / cell.quarantine.path,
        "vector": vector,
    }
    now = time.time()
    for path in files.values():
        os.utime(path, (now + 500, now + 500))
    os.utime(files[kind], (1, 1))
    check_for_commit(table, quarantine, now, [cell])
    touched = {name for name, path in files.items() if path.stat().st_mtime < now + 400}
    assert touched == {kind}
    assert files[kind].stat().st_mtime > now - 5

    os.utime(files[kind], (1, 1))
    touch = Store.touch

    def delete_before(store: Store, path: str) -> None:  # a vacuum, after the check
        files[kind].unlink()
        touch(store, path)

    monkeypatch.setattr(Store, "touch", delete_before)
    with pytest.raises(CommitError, match=rf"{files[kind].name} was deleted; run the job again"):
        check_for_commit(table, quarantine, now, [cell])


def test_deletion_vector_that_is_deleted_after_its_check_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    table, quarantine = make_tables(tmp_path)
    old = make_cell(table, quarantine, 0, "".join(map(chr, range(0x4E00, 0x4E00 + 400))))
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, old))
    rows = range(0, 400, 2)
    cell = recount(make_cell(table, quarantine, 0, "d"), deletions=deletion(table, old, *rows), deleted=len(rows))
    (vector,) = Path(table.uri).glob("deletion_vector_*.bin")
    entry = Store.entry

    def vacuum_before(store: Store, path: str) -> object:
        if path == vector.name:
            vector.unlink(missing_ok=True)
        return entry(store, path)

    monkeypatch.setattr(Store, "entry", vacuum_before)
    with pytest.raises(CommitError, match=rf"{vector.name} was deleted; run the job again"):
        check_for_commit(table, quarantine, 0, [cell])


def test_wave_with_wrong_row_counts_is_not_committed(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    wrong = recount(make_cell(table, quarantine, 0, "ab"), rows_in=3)
    with pytest.raises(IncompleteWaveError, match="wave 0"):
        Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, wrong))
    assert ids_of(table) == []


def test_commit_that_every_try_conflicts_with_another_raises_commit_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    table, quarantine = make_tables(tmp_path)
    result = make_wave(table, quarantine, 0, "a")
    tries = []

    def conflict(self, *_, **__) -> None:
        tries.append(self)
        raise TableConflictError("another commit came first")

    monkeypatch.setattr(Table, "commit", conflict)
    monkeypatch.setattr("lsr_prod.encoding.commit.committer._CONFLICT_TRIES", 7)
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(CommitError, match=r"wave 0 was refused 7 times \(another commit came first\)"):
        Committer(take_epoch(table, "p", []), table, quarantine).commit(result)
    assert len(tries) == 7


def test_deletions_that_name_another_number_of_earlier_ones_are_refused(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    old = make_cell(table, quarantine, 0, "abcd")
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, old))
    (one,) = deletion(table, old, 1)
    wave = replace(make_cell(table, quarantine, 0, "e"), deletions=(replace(one, rows=0),))
    with pytest.raises(IncompleteWaveError, match="wave 0"):
        Committer(take_epoch(table, "q", []), table, quarantine).commit(as_wave(0, wave))
    assert ids_of(table) == ["a", "b", "c", "d"]


def test_rows_of_a_part_without_statistics_are_counted_before_they_are_deleted(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    old = make_cell(table, quarantine, 0, "ab")
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, old))
    log = Path(table.uri) / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [file.rows for file in newest(table).files()] == [None]
    whole = recount(make_cell(table, quarantine, 0, "e"), deletions=deletion(table, old, 0, 1), deleted=2)
    assert Committer(take_epoch(table, "q", []), table, quarantine).commit(as_wave(0, whole))
    assert ids_of(table) == ["e"]
    assert old.parts[0].path not in {file.path for file in newest(table).files()}


def test_deletions_of_vectors_that_changed_in_the_meantime_are_stale(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    old = make_cell(table, quarantine, 0, "abcd")
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(as_wave(0, old))
    ours = recount(make_cell(table, quarantine, 0, "e"), deletions=deletion(table, old, 1), deleted=1)
    theirs = recount(make_cell(table, quarantine, 0, "f"), deletions=deletion(table, old, 2), deleted=1)
    assert Committer(take_epoch(table, "q", []), table, quarantine).commit(as_wave(0, theirs))
    with pytest.raises(StaleWaveError, match="wave 0 deletes rows of 1 parts"):
        Committer(take_epoch(table, "r", []), table, quarantine).commit(as_wave(0, ours))
    assert ids_of(table) == ["a", "b", "d", "f"]


def test_wave_after_a_missing_one_is_refused(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    with pytest.raises(CommitError, match="wave 1 is next but the table has 0 waves; run the job again"):
        Committer(take_epoch(table, "p", []), table, quarantine).commit(make_wave(table, quarantine, 1, "a"))
    assert ids_of(table) == []


def test_attempt_without_bad_rows_removes_those_of_an_attempt_that_was_killed_between_its_commits(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)

    def killed() -> None:
        raise KeyboardInterrupt

    # Its epoch is checked before each of its two commits.
    with pytest.raises(KeyboardInterrupt):
        interrupted(table, quarantine, lambda: None, killed).commit(make_wave(table, quarantine, 0, "ab", "c"))
    assert (ids_of(table), bad_rows(quarantine)) == ([], 1)
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    assert committer.commit(make_wave(table, quarantine, 0, "abc")) is True
    assert (ids_of(table), bad_rows(quarantine)) == (["a", "b", "c"], 0)
    done = newest(quarantine).version
    committer.clear_quarantine(0)
    assert newest(quarantine).version == done  # there is nothing to remove


def test_attempt_with_the_bad_rows_of_one_that_was_killed_between_its_commits_keeps_their_part(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    result = make_wave(table, quarantine, 0, "ab", "c")

    def killed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(table, quarantine, lambda: None, killed).commit(result)
    assert Committer(take_epoch(table, "p", []), table, quarantine).commit(result) is True
    assert (ids_of(table), bad_rows(quarantine)) == (["a", "b"], 1)


def test_bad_rows_of_the_wave_that_was_given_up_are_removed_and_others_stay(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    assert committer.commit(make_wave(table, quarantine, 0, "a", "xy"))
    assert committer.commit(make_wave(table, quarantine, 1, "b", "z"))
    committer.clear_quarantine(1)
    assert bad_rows(quarantine) == 2
    take_epoch(table, "p", [])
    with pytest.raises(FencedError):
        committer.clear_quarantine(0)
    assert bad_rows(quarantine) == 2


def test_deleted_table_is_an_error_and_not_created_again(tmp_path: Path):
    store = Store(str(tmp_path / "gone"))
    epoch = take_epoch(store, "p", [])
    with pytest.raises(CommitError, match="no longer a table"):
        Committer(epoch, store, store).fence()
    assert create_table(store, newest(make_tables(tmp_path)[0]).schema, ["bucket"], {}).version == 0
