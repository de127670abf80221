"""A plan is given up while an attempt at it commits: the two plans never both commit, in any order of events."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lsr_prod.encoding.commit.committer import Committer, waves_done
from lsr_prod.encoding.commit.fence import newest_attempt, take_epoch
from lsr_prod.encoding.commit.markers import give_up_base
from lsr_prod.encoding.plans.encode_plan import Plan
from lsr_prod.encoding.plans.successors import plan_chain, successor_of
from lsr_prod.encoding.results import WaveResult
from lsr_prod.errors import CommitError, FencedError
from lsr_prod.storage import Store
from tests.encoding.commit.test_committer import Interrupted
from tests.encoding.made_tables import as_wave, bad_rows, ids_of, make_cell, make_tables, newest
from tests.encoding.plans.test_increment import MEGABYTE, files_of, first_plan, prepare, save

OLD = first_plan("abc", size=MEGABYTE)


def tables(folder: Path) -> tuple[Store, Store]:
    table, quarantine = make_tables(folder)
    save(OLD, table)
    return table, quarantine


def attempt(table: Store, quarantine: Store, *events: Callable[[], object], plan: Plan = OLD) -> Committer:
    """Return an attempt at a plan during which something happens after each check of its epoch."""
    epoch = take_epoch(table, plan.digest, ())
    return Committer(Interrupted(epoch.store, epoch.plan, epoch.number, iter(events)), table, quarantine)


def wave(table: Store, quarantine: Store, number: int, ids: str, bad: str = "", plan: Plan = OLD) -> WaveResult:
    return as_wave(number, make_cell(table, quarantine, number, ids, bad, plan=plan.digest))


def linked(table: Store) -> Plan:
    """Return the plan that gives up the old one, linked but without a fence."""

    def done(plan: str) -> int:
        return waves_done(newest(table), plan)

    abandon = OLD.digest if done(OLD.digest) else None
    after = prepare(table, files_of("x"), OLD, done={OLD.digest: done(OLD.digest)}, abandon=abandon)
    save(after, table, done)
    return after


@pytest.mark.parametrize("committed", [0, 1])
@pytest.mark.parametrize("stalls_after", [0, 1])
def test_attempt_that_stalls_before_its_commit_cannot_commit_a_plan_that_was_given_up(
    tmp_path: Path, stalls_after: int, committed: int
) -> None:
    table, quarantine = tables(tmp_path)
    if committed:
        attempt(table, quarantine).commit(wave(table, quarantine, 0, "ab"))
    after: list[Plan] = []

    def give_up() -> None:
        after.append(linked(table))
        give_up_base(after[0], table, quarantine)

    stalled = attempt(table, quarantine, *[lambda: None] * stalls_after, give_up)
    with pytest.raises(FencedError):
        stalled.commit(wave(table, quarantine, committed, "cd", "y"))
    assert ids_of(table) == list("ab" * committed)
    assert bad_rows(quarantine, OLD.digest) == 0
    newer = attempt(table, quarantine, plan=after[0])
    assert newer.commit(wave(table, quarantine, 0, "ef", plan=after[0])) is True
    assert ids_of(table) == list("ab" * committed + "ef")


def test_wave_that_is_committed_between_link_and_fence_makes_the_link_invalid(tmp_path: Path) -> None:
    table, quarantine = tables(tmp_path)
    after: list[Plan] = []
    slow = attempt(table, quarantine, lambda: after.append(linked(table)))
    assert slow.commit(wave(table, quarantine, 0, "ab")) is True
    with pytest.raises(CommitError, match="has committed 1 waves, but 0 when this run began"):
        give_up_base(after[0], table, quarantine)
    assert successor_of(table, OLD.digest, lambda plan: waves_done(newest(table), plan)) is None
    assert attempt(table, quarantine).commit(wave(table, quarantine, 1, "cd")) is True
    assert ids_of(table) == list("abcd")


def test_attempt_that_begins_after_its_plan_was_given_up_is_fenced(tmp_path: Path) -> None:
    table, quarantine = tables(tmp_path)
    give_up_base(linked(table), table, quarantine)
    late = attempt(table, quarantine)
    late.fence()
    with pytest.raises(FencedError, match="was given up"):
        late.commit(wave(table, quarantine, 0, "ab"))
    assert ids_of(table) == []


def test_attempt_is_fenced_if_the_run_that_gave_its_plan_up_died_before_its_fence(tmp_path: Path) -> None:
    table, quarantine = tables(tmp_path)
    after: list[Plan] = []

    def two_nights() -> None:
        linked(table)  # and its run dies
        after.append(prepare(table, files_of("y"), OLD, done={}))
        save(after[0], table, lambda _plan: 0)
        give_up_base(after[0], table, quarantine)
        attempt(table, quarantine, plan=after[0]).commit(wave(table, quarantine, 0, "ef", plan=after[0]))

    stalled = attempt(table, quarantine, lambda: None, two_nights)
    with pytest.raises(FencedError):
        stalled.commit(wave(table, quarantine, 0, "ab", "z"))
    assert ids_of(table) == ["e", "f"]
    assert bad_rows(quarantine, OLD.digest) == 0
    assert plan_chain(table, OLD.digest, lambda plan: waves_done(newest(table), plan))[-1] == after[0].digest


def test_only_plans_that_may_still_commit_are_fenced_and_the_log_says_which_was_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, quarantine = tables(tmp_path)
    attempt(table, quarantine).commit(wave(table, quarantine, 0, "ab"))
    second = linked(table)
    give_up_base(second, table, quarantine)
    attempt(table, quarantine, plan=second).fence()
    fenced = newest_attempt(table, OLD.digest)
    third = prepare(table, files_of("y"), OLD, done={OLD.digest: 1, second.digest: 0})
    save(third, table, lambda plan: waves_done(newest(table), plan))
    give_up_base(third, table, quarantine)
    messages = [record.message.partition(":")[0] for record in caplog.records if record.message.startswith("plan ")]
    assert messages == ["plan abandoned", "plan superseded"]
    # The second plan has a transaction: its run has given up the first one before.
    assert fenced is not None
    assert newest_attempt(table, OLD.digest) == fenced
