"""Old plans are deleted with their links, epochs and totals; what a run, a resume or ``status`` needs is kept."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.plans.encode_plan import Plan
from lsr_prod.encoding.plans.successors import (
    check_not_followed,
    link_successor,
    load_plan,
    plan_chain,
    plan_objects,
    save_plan,
)
from lsr_prod.encoding.tables.sparse_table import create_sparse_table
from lsr_prod.errors import ArtifactError, CommitError, FencedError
from lsr_prod.operations.maintenance.vacuum import Garbage, shorten_chain, vacuum
from lsr_prod.operations.status import table_status
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import record_bytes
from tests.encoding.made_tables import PROPERTIES, newest
from tests.encoding.plans.test_increment import MEGABYTE, files_of, first_plan, increment, prepare
from tests.operations.maintenance.test_vacuum import DAY, age


def done_in(table: Store, plan: str) -> int:
    return waves_done(newest(table), plan)


def commit(table: Store, plan: Plan, waves: int | None = None) -> None:
    """Commit the first waves of a plan, or all of them, as one attempt does."""
    take_epoch(table, plan.digest, ())
    waves = plan.waves if waves is None else waves
    if waves:
        newest(table).commit([], [], app=plan.digest, version=waves - 1, epoch=1)


def follow(table: Store, base: Plan, files: str, waves: int | None = None) -> Plan:
    """Save, link and commit the plan that follows another one."""
    done = done_in(table, base.digest)
    plan = increment(base, files_of(files, size=MEGABYTE), done=done, abandon=done < base.waves)
    save_plan(plan, table)
    link_successor(table, plan, lambda digest: done_in(table, digest))
    commit(table, plan, waves)
    return plan


def night(table: Store, days: float = 30) -> Garbage:
    """Let all files get old, then maintain the table."""
    age(Path(table.uri), days)
    return maintained(table)


def maintained(table: Store) -> Garbage:
    listed = vacuum(table, DAY, dry_run=True)
    deleted = vacuum(table, DAY)
    assert listed == deleted
    shorten_chain(newest(table))
    return deleted


def nights(folder: Path, states: Sequence[str]) -> tuple[Store, list[Plan]]:
    """Return a table with a finished plan for each state of its source."""
    table = Store(str(folder / "table"))
    root = first_plan(states[0], size=MEGABYTE)
    save_plan(root, table)
    create_sparse_table(table, PROPERTIES, root.digest)
    commit(table, root)
    table.put_new(f"_lsr_prod/totals/{root.digest}.json", record_bytes({"reasons": {}}))
    plans = [root]
    for files in states[1:]:
        plans.append(follow(table, plans[-1], files))
    return table, plans


def objects_of(table: Store, plan: Plan) -> set[str]:
    """Return the folders inside ``_lsr_prod`` that have an object of a plan."""
    return {name.split("/")[1] for name in table.names("_lsr_prod") if plan.digest in name}


def test_finished_plans_between_the_first_and_the_newest_are_deleted(tmp_path: Path):
    table, (root, *between, last) = nights(tmp_path, ["a", "ab", "abc", "abcd", "bcd"])
    assert night(table).counts() == {"totals": 1}  # those of the first plan; now the chain is shortened
    assert vacuum(table, DAY).entries == ()  # a running process may still follow the old link
    assert night(table).counts() == {"epochs": 3, "plans": 8, "successors": 3}
    assert [objects_of(table, plan) for plan in between] == [set(), set(), {"plans", "successors"}]
    assert plan_chain(table, root.digest, lambda digest: done_in(table, digest))[-1] == last.digest
    assert load_plan(table, last.digest).digest == last.digest
    assert [(plan.plan, plan.state) for plan in table_status(table).plans] == [
        (root.digest, "finished"), (last.digest, "finished")
    ]  # fmt: skip
    after = follow(table, last, "cde")
    assert plan_chain(table, root.digest, lambda digest: done_in(table, digest))[-1] == after.digest


def test_files_of_plans_do_not_grow_with_the_nights(tmp_path: Path):
    table, plans = nights(tmp_path, ["a", "ab"])
    counts = []
    for number in range(6):
        plans.append(follow(table, plans[-1], "ab" + "cd"[number % 2]))
        night(table)
        counts.append(len(table.names("_lsr_prod")))
    assert counts[2:] == counts[2:3] * 4
    assert plan_chain(table, plans[0].digest, lambda digest: done_in(table, digest))[-1] == plans[-1].digest


def test_all_epochs_but_the_newest_of_a_plan_are_deleted(tmp_path: Path):
    table, (root,) = nights(tmp_path, ["a"])
    attempts = [take_epoch(table, root.digest, ()) for _ in range(3)]
    assert night(table).counts() == {"epochs": 3}
    attempts[-1].check()
    for operation in (attempts[0].check, attempts[0].began):
        with pytest.raises(FencedError, match=r"attempt 4 .* has taken over from attempt 2"):
            operation()
    assert take_epoch(table, root.digest, ()).number == 5


def test_unfinished_plan_is_kept_and_resumed(tmp_path: Path):
    table, (root, *_, last) = nights(tmp_path, ["ab", "abc", "abcd"])
    begun = follow(table, last, "abcdef", waves=1)
    assert begun.waves == 2
    for _ in range(3):
        night(table)
    done = {plan: done_in(table, plan) for plan in (root.digest, begun.digest)}
    assert prepare(table, files_of("abcdef", size=MEGABYTE), root, done=done).digest == begun.digest
    link_successor(table, begun, lambda digest: done_in(table, digest))
    commit(table, begun)
    assert table_status(table).plans[-1].state == "finished"


def test_plan_that_was_given_up_cannot_be_committed_after_its_record_was_deleted(tmp_path: Path):
    table, (root, second) = nights(tmp_path, ["ab", "abc"])
    begun = follow(table, second, "abcdef", waves=1)
    stalled = take_epoch(table, begun.digest, ())
    after = follow(table, begun, "abcx")
    last = follow(table, after, "abcy")
    for _ in range(3):
        night(table)
    assert objects_of(table, begun) == {"successors"}
    with pytest.raises(FencedError, match=r"record of attempt 2 .* was deleted"):
        stalled.check()
    with pytest.raises(FencedError, match="was given up"):
        check_not_followed(table, begun.digest, 1)
    assert {plan.plan for plan in table_status(table).plans} == {root.digest, last.digest}


def test_run_that_stalls_before_its_link_is_refused_after_its_base_was_deleted(tmp_path: Path):
    table, (_, second) = nights(tmp_path, ["a", "ab"])
    stalled = increment(second, files_of("abz"))
    save_plan(stalled, table)
    third = follow(table, second, "abc")
    follow(table, third, "abcd")
    for _ in range(2):
        night(table)
    assert objects_of(table, second) == objects_of(table, stalled) == set()
    with pytest.raises(CommitError, match="stalled for longer than"):
        link_successor(table, stalled, lambda digest: done_in(table, digest))
    save_plan(stalled, table)
    with pytest.raises(CommitError, match=f"{second.digest}.json was deleted"):
        link_successor(table, stalled, lambda digest: done_in(table, digest))
    assert objects_of(table, second) == set()


def test_saved_plan_that_may_still_be_linked_is_kept(tmp_path: Path):
    table, (root, last) = nights(tmp_path, ["a", "ab"])
    waiting = increment(last, files_of("abc"))
    save_plan(waiting, table)
    incomplete = increment(last, files_of("abd"))
    save_plan(incomplete, table)
    table.delete(plan_objects(incomplete.digest)[0])  # its run was killed before it wrote the record
    for _ in range(2):
        night(table)
    assert objects_of(table, incomplete) == set()
    assert load_plan(table, waiting.digest).digest == waiting.digest
    link_successor(table, waiting, lambda digest: done_in(table, digest))
    assert plan_chain(table, root.digest, lambda digest: done_in(table, digest))[-1] == waiting.digest


def test_chain_is_not_shortened_to_a_plan_without_a_committed_wave(tmp_path: Path):
    table, (root, second) = nights(tmp_path, ["a", "ab"])
    third = follow(table, second, "abc", waves=0)
    night(table)
    names = table.names(f"_lsr_prod/successors/{root.digest}")
    assert len(names) == 1
    commit(table, third)
    night(table)
    assert len(table.names(f"_lsr_prod/successors/{root.digest}")) == 2


@pytest.mark.parametrize("record", [b"{", b"[]"])
def test_damaged_record_of_a_plan_stops_maintenance_before_it_deletes_anything(tmp_path: Path, record: bytes):
    table, (_, last) = nights(tmp_path, ["a", "ab"])
    take_epoch(table, last.digest, ())
    (Path(table.uri) / plan_objects(last.digest)[0]).write_bytes(record)
    age(Path(table.uri))
    before = table.names()
    with pytest.raises(ArtifactError, match="is damaged"):
        vacuum(table, DAY)
    assert table.names() == before
