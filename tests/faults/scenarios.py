"""Scenarios: chosen interleavings of attempts, maintenance and changes of the source.

Each is one function of a scene. A correct protocol passes all of them for each sink; a mutant has to fail one.
"""

import random
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.faults import damage
from tests.faults.scene import DAY, Scene
from tests.faults.script import Script

__all__ = ["SCENARIOS", "Scenario"]

Scenario = Callable[[Scene], None]


def chain_without_faults(scene: Scene) -> None:
    """Follow every state of the source, and compact and vacuum in between."""
    for state in range(len(scene.chain)):
        scene.change_source(state)
        scene.finish()
        scene.compact()
        scene.check(finished=True)
        scene.age()
        scene.vacuum()
        scene.check(finished=True)


def older_stalls_between_its_commits(scene: Scene) -> None:
    """Let an attempt stall before its last commit, a newer one get as far, then the older and the newer proceed."""
    first, second = _two_words(scene)
    gates = (("log-table", 1),)
    with scene.start(Script(flaky=first, gates=gates)) as older:
        scene.reach(older)
        scene.forget_markers()
        with scene.start(Script(flaky=second, gates=gates)) as newer:
            scene.reach(newer)
            older.proceed()
            scene.ended(older)
            newer.proceed()
            scene.ended(newer)
    scene.finish()


def older_stalls_until_newer_is_done(scene: Scene) -> None:
    """Let an attempt stall between its check of the epoch and its commit until a newer one has finished."""
    first, second = _two_words(scene)
    with scene.start(Script(flaky=first, gates=(("log-table", 1),))) as older:
        scene.reach(older)
        scene.forget_markers()
        scene.run(Script(flaky=second))
        older.proceed()
        scene.ended(older)
    scene.finish()


def older_stalls_before_its_bad_rows(scene: Scene) -> None:
    """Let an attempt stall before it commits bad rows of a wave that has none in the newer attempt."""
    word = next(scene.chain.words("2.jsonl"))
    with scene.start(Script(flaky=word, gates=(("log-quarantine", 3),))) as older:
        scene.reach(older)
        scene.forget_markers()
        scene.run(Script())
        older.proceed()
        scene.ended(older)
    scene.finish()


def older_decides_again(scene: Scene) -> None:
    """Let a stalled attempt be refused and decide again while a newer one is between its two commits."""
    first, second = _two_words(scene)
    with scene.start(Script(flaky=first, gates=(("log-quarantine", 1), ("log-table", 1)))) as older:
        scene.reach(older)
        scene.forget_markers()
        with scene.start(Script(flaky=second, gates=(("log-table", 1),))) as newer:
            scene.reach(newer)
            older.proceed()
            if older.until_gate():
                older.kill()
            newer.proceed()
            scene.ended(newer)
    scene.finish()


def killed_before_a_commit(scene: Scene) -> None:
    """Kill an attempt before the commit of each table; the next attempts have other bad rows."""
    words = scene.chain.words()
    for moment in ("log-quarantine", "log-table"):
        with scene.start(Script(flaky=next(words), gates=((moment, 1),))) as attempt:
            scene.reach(attempt)
        scene.check(finished=False)
        scene.forget_markers()
    scene.run(Script(flaky=next(words)))
    scene.finish()


def commit_succeeds_but_reports_an_error(scene: Scene) -> None:
    """Let the store lose the answer to a commit, in the first plan and in an increment."""
    scene.run(Script(landed=4))
    scene.finish()
    scene.change_source(1)
    scene.run(Script(landed=4))
    scene.finish()


def parts_are_damaged_before_their_commit(scene: Scene) -> None:
    """Truncate or delete a part of the table after it is written; its attempt continues or is killed."""
    rng = random.Random(1)
    quarantine = scene.job.stores[1]
    for strike, killed in ((damage.tear, False), (damage.remove, True), (damage.tear, True)):
        old = {*scene.job.stores[0].names(), *quarantine.names()}
        with scene.start(Script(gates=(("commit", 1),))) as attempt:
            scene.reach(attempt)
            strike(scene.job, rng, {*old, *quarantine.names()})
            if not killed:
                attempt.proceed()
                scene.ended(attempt)
        scene.check(finished=False)
        with scene.start(Script(gates=(("after-commit", 1),))) as attempt:
            scene.reach(attempt)
    scene.finish()


def vacuum_meets_reused_parts(scene: Scene) -> None:
    """Vacuum twice while an attempt is about to commit old parts of an earlier attempt."""
    with scene.start(Script(gates=(("commit", 1),))) as killed:
        scene.reach(killed)
    scene.age()
    _vacuum_before_commit(scene)


def vacuum_meets_new_parts(scene: Scene) -> None:
    """Vacuum twice while an attempt is about to commit its parts."""
    _vacuum_before_commit(scene)


def _vacuum_before_commit(scene: Scene) -> None:
    with scene.start(Script(gates=(("log-table", 1),))) as attempt:
        scene.reach(attempt)
        for _ in range(2):
            scene.vacuum()
        attempt.proceed()
        scene.ended(attempt)
    scene.finish()


def vacuum_lists_parts_that_are_reused(scene: Scene) -> None:
    """Stop a vacuum between its list of garbage and its deletions, while an attempt commits these parts."""
    with scene.start(Script(gates=(("commit", 1),))) as killed:
        scene.reach(killed)
    scene.forget_markers()
    with scene.start(Script(work="vacuum", retention=DAY, gates=(("look", 1),))) as vacuum:
        scene.reach(vacuum)
        scene.finish()
        vacuum.proceed()
        scene.ended(vacuum)
    scene.finish()


def vacuum_keeps_named_versions(scene: Scene) -> None:
    """Vacuum with an old version that must be kept, then read that version."""
    scene.finish()
    version = scene.version()
    scene.compact()
    scene.change_source(1)
    scene.finish()
    scene.age()
    for _ in range(2):  # the first one deletes only the markers, which protect the parts that they name
        scene.vacuum(version)
    scene.check(finished=True)
    scene.check_version(version, 0)


def compaction_commits_before_an_increment(scene: Scene) -> None:
    """Compact while an attempt is about to commit a wave that replaces parts."""
    scene.finish()
    scene.change_source(1)
    with scene.start(Script(gates=(("log-table", 1),))) as attempt:
        scene.reach(attempt)
        scene.compact()
        scene.check(finished=False)
        attempt.proceed()
        scene.ended(attempt)
    scene.finish()


def increment_commits_before_a_compaction(scene: Scene) -> None:
    """Let an increment replace parts while a compaction is about to replace them."""
    scene.finish()
    scene.change_source(1)
    with scene.start(Script(work="compact", gates=(("log-compact", 1),))) as compaction:
        scene.reach(compaction)
        scene.finish()
        compaction.proceed()
        scene.ended(compaction)
    scene.finish()


def compaction_follows_a_killed_increment(scene: Scene) -> None:
    """Compact the parts that a finished cell of a killed attempt would replace."""
    scene.finish()
    scene.change_source(1)
    with scene.start(Script(gates=(("commit", 1),))) as killed:
        scene.reach(killed)
    scene.compact()
    scene.finish()


def source_changes_before_the_plan_is_saved(scene: Scene) -> None:
    """Let two attempts plan different increments of one table."""
    for state in range(3):
        scene.change_source(state)
        scene.finish()
    scene.change_source(3)
    with scene.start(Script(gates=(("save-plan", 1),))) as older:
        scene.reach(older)
        scene.change_source(4)
        scene.finish()
        older.proceed()
        scene.ended(older)
    scene.finish()


def plan_is_superseded_during_its_commit(scene: Scene) -> None:
    """Change the source while an attempt is about to commit the first wave of a plan, and let another plan finish."""
    with scene.start(Script(gates=(("log-table", 1),))) as older:
        scene.reach(older)
        scene.change_source(1)
        scene.finish()
        older.proceed()
        scene.ended(older)
    scene.finish()


def superseded_plan_is_resumed(scene: Scene) -> None:
    """Let an attempt resume a plan that another plan supersedes in the meantime."""
    with scene.start(Script(gates=(("commit", 1),))) as killed:
        scene.reach(killed)
    with scene.start(Script(gates=(("save-plan", 1),))) as older:
        scene.reach(older)
        scene.change_source(1)
        scene.finish()
        older.proceed()
        scene.ended(older)
    scene.finish()


def plan_commits_before_it_is_given_up(scene: Scene) -> None:
    """Let a plan commit a wave after its successor was linked, and before the plan is fenced."""
    for killed in (True, False):
        with scene.start(Script(gates=(("log-table", 1),))) as older:
            scene.reach(older)
            scene.change_source(scene.state + 1)
            with scene.start(Script(gates=(("give-up", 1),))) as newer:
                scene.reach(newer)
                if killed:
                    newer.kill()
                older.proceed()
                scene.ended(older)
                newer.proceed()
                scene.ended(newer)
        scene.change_source(scene.state - 1)
        scene.finish()
        scene.change_source(scene.state + 1)


def plan_is_abandoned_between_its_waves(scene: Scene) -> None:
    """Give up an increment that has committed some of its waves."""
    scene.finish()
    scene.change_source(1)
    with scene.start(Script(gates=(("after-commit", 1),))) as killed:
        scene.reach(killed)
    scene.abandon(2)
    scene.finish()


def source_changes_while_it_is_read(scene: Scene) -> None:
    """Replace a file after it was pinned and before it is read, then bring the old one back."""
    with scene.start(Script(gates=(("read", 1),))) as attempt:
        scene.reach(attempt)
        path, other = Path(scene.job.paths[1]), scene.chain.content(1)["1.jsonl"]
        old = path.read_bytes()
        path.write_bytes(other)
        attempt.proceed()
        scene.ended(attempt)
    scene.check(finished=False)
    path.write_bytes(old)
    scene.finish()


def a_row_is_lost_on_the_way_to_its_cell(scene: Scene) -> None:
    """Lose a row between the read tasks and the cells."""
    scene.run(Script(loses="shuffle"))
    scene.check(finished=False)
    scene.finish()


def attempts_read_different_rows(scene: Scene) -> None:
    """Let an attempt lose rows while reading, and finish its cells before a newer one that reads every row."""
    with scene.start(Script(loses="read", gates=(("read", 1), ("commit", 1)))) as short:
        scene.reach(short)
        with scene.start(Script(gates=(("read", 1),))) as whole:
            scene.reach(whole)
            short.proceed()
            scene.reach(short)
            short.kill()
            whole.proceed()
            ended = scene.ended(whole)
    scene.check(finished=ended.how == "done")


def _two_words(scene: Scene) -> tuple[str, str]:
    words = scene.chain.words()
    return next(words), next(words)


SCENARIOS: Mapping[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        chain_without_faults,
        older_stalls_between_its_commits,
        older_stalls_until_newer_is_done,
        older_stalls_before_its_bad_rows,
        older_decides_again,
        killed_before_a_commit,
        commit_succeeds_but_reports_an_error,
        parts_are_damaged_before_their_commit,
        vacuum_meets_reused_parts,
        vacuum_meets_new_parts,
        vacuum_lists_parts_that_are_reused,
        vacuum_keeps_named_versions,
        compaction_commits_before_an_increment,
        increment_commits_before_a_compaction,
        compaction_follows_a_killed_increment,
        source_changes_before_the_plan_is_saved,
        plan_is_superseded_during_its_commit,
        superseded_plan_is_resumed,
        plan_commits_before_it_is_given_up,
        plan_is_abandoned_between_its_waves,
        source_changes_while_it_is_read,
        a_row_is_lost_on_the_way_to_its_cell,
        attempts_read_different_rows,
    )
}
