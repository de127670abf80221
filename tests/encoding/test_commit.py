"""Races that the kill tests cannot time: a rival acts exactly between a committer's check and its commit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lsr_prod.encoding.commit import BucketResult, Committer, WaveResult, waves_done
from lsr_prod.encoding.fence import Epoch, take_epoch
from lsr_prod.encoding.parts import Part
from lsr_prod.encoding.quarantine import quarantined_by_reason
from lsr_prod.errors import CommitError, FencedError, IncompleteWaveError
from lsr_prod.storage import Store
from tests.encoding.tables import make_bucket, make_tables, make_wave


@dataclass(frozen=True, slots=True)
class Interrupted(Epoch):
    """An epoch whose attempt is stopped after each check until the next of ``events`` is over."""

    events: Iterator[Callable[[], object]]

    def check(self) -> None:
        Epoch.check(self)
        next(self.events, lambda: None)()


def interrupted(table: Store, quarantine: Store, *events: Callable[[], object]) -> Committer:
    epoch = take_epoch(table, "p", [])
    return Committer(Interrupted(epoch.store, epoch.plan, epoch.number, iter(events)), table, quarantine)


def rival_commits(table: Store, quarantine: Store, result: WaveResult) -> Callable[[], bool]:
    return lambda: Committer(take_epoch(table, "p", []), table, quarantine).commit(result)


def ids(table: Store) -> list[str]:
    return sorted(DeltaTable(table.location).to_pyarrow_table()["doc_id"].to_pylist())


def bad_rows(quarantine: Store) -> int:
    return quarantined_by_reason(quarantine, DeltaTable(quarantine.location), "p", 9).total()


@pytest.mark.parametrize("bad", ["", "xy"])
def test_a_rival_between_check_and_commit_wins_and_nothing_doubles(tmp_path: Path, bad: str):
    table, quarantine = make_tables(tmp_path)
    result = make_wave(table, quarantine, 0, "abc", bad)
    committer = interrupted(table, quarantine, rival_commits(table, quarantine, result))
    assert committer.commit(result) is False
    assert (ids(table), bad_rows(quarantine)) == (["a", "b", "c"], len(bad))


def test_a_rival_between_the_two_commits_replaces_quarantine_and_wins(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    ours = make_wave(table, quarantine, 0, "ab", "cx")  # c failed here and not there
    theirs = make_wave(table, quarantine, 0, "abc", "x")
    committer = interrupted(table, quarantine, lambda: None, rival_commits(table, quarantine, theirs))
    assert committer.commit(ours) is False
    assert (ids(table), bad_rows(quarantine)) == (["a", "b", "c"], 1)


def test_an_attempt_that_was_overtaken_between_check_and_commit_is_fenced_at_its_next_wave(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    first, second = make_wave(table, quarantine, 0, "a"), make_wave(table, quarantine, 1, "b")
    committer = interrupted(table, quarantine, lambda: None, rival_commits(table, quarantine, first))
    assert committer.commit(first) is True
    assert committer.commit(second) is True  # the rival found wave 0 done and has committed nothing since
    with pytest.raises(FencedError):
        committer.commit(make_wave(table, quarantine, 2, "c"))
    assert ids(table) == ["a", "b"]


def test_a_newer_attempt_makes_the_stalled_commit_of_an_older_one_fail(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    ours = make_wave(table, quarantine, 0, "ab", "cx")  # c failed here and not there
    theirs = make_wave(table, quarantine, 0, "abc", "x")
    rival: list[Committer] = []

    def begin() -> None:  # the rival has fenced and not yet committed when the stalled attempt goes on
        rival.append(Committer(take_epoch(table, "p", []), table, quarantine))
        rival[0].fence()

    stalled = interrupted(table, quarantine, lambda: None, begin)
    with pytest.raises(FencedError):
        stalled.commit(ours)
    assert ids(table) == []
    assert rival[0].commit(theirs) is True
    assert (ids(table), bad_rows(quarantine)) == (["a", "b", "c"], 1)


def test_a_fence_adds_no_wave_and_an_older_attempt_cannot_fence(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    older, newer = (Committer(take_epoch(table, "p", []), table, quarantine) for _ in range(2))
    with pytest.raises(FencedError):
        older.fence()
    newer.fence()
    assert waves_done(DeltaTable(table.location), "p") == 0
    assert newer.commit(make_wave(table, quarantine, 0, "a")) is True
    newer.fence()
    assert waves_done(DeltaTable(table.location), "p") == 1
    assert newer.commit(make_wave(table, quarantine, 1, "b")) is True
    assert ids(table) == ["a", "b"]


def test_waves_are_counted_by_plan(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    assert waves_done(DeltaTable(table.location), "p") == 0
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    for wave, name in enumerate("abc"):
        assert committer.commit(make_wave(table, quarantine, wave, name, "x")) is True
        assert committer.commit(make_wave(table, quarantine, wave, name, "x")) is False
        assert waves_done(DeltaTable(table.location), "p") == wave + 1
    assert waves_done(DeltaTable(table.location), "q") == 0
    assert bad_rows(quarantine) == 3


def test_a_wave_of_only_bad_rows_or_of_none_is_a_commit_too(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    committer = Committer(take_epoch(table, "p", []), table, quarantine)
    assert committer.commit(make_wave(table, quarantine, 0, "", "xyz"))
    assert committer.commit(WaveResult(1, ()))
    assert committer.commit(make_wave(table, quarantine, 2, "a"))
    assert (ids(table), bad_rows(quarantine)) == (["a"], 3)


@pytest.mark.parametrize("kind", ["part", "quarantine"])
def test_a_torn_part_of_either_table_stops_the_wave(tmp_path: Path, kind: str):
    table, quarantine = make_tables(tmp_path)
    result = make_wave(table, quarantine, 0, "a", "x")
    part: Part = getattr(result.buckets[0], kind)
    store = table if kind == "part" else quarantine
    path = Path(store.uri) / part.path
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CommitError, match=rf"bytes instead of {part.size}"):
        Committer(take_epoch(table, "p", []), table, quarantine).commit(result)
    assert [DeltaTable(folder.location).version() for folder in (table, quarantine)] == [0, 0]


def test_a_result_adds_up_its_buckets_and_refuses_a_count_that_is_off(tmp_path: Path):
    table, quarantine = make_tables(tmp_path)
    one = make_bucket(table, quarantine, 0, "ab", "x", bucket=0)
    other = make_bucket(table, quarantine, 0, "c", "yz", bucket=1)
    result = WaveResult(0, (one, other))
    result.check()
    assert (result.rows_in, result.rows_out, result.reasons, result.clipped) == (6, 3, {"broken_json": 3}, 0)
    wrong = [
        BucketResult(0, 2, one.part, one.quarantine, one.reasons, 0),
        BucketResult(0, 3, one.part, None, {}, 0),
        BucketResult(0, 3, one.part, one.quarantine, {"broken_json": 2}, 0),
        BucketResult(0, 3, None, one.quarantine, one.reasons, 0),
        other,
    ]
    for bucket in wrong:
        with pytest.raises(IncompleteWaveError, match=r"wave 0: "):
            WaveResult(0, (bucket, other)).check()
