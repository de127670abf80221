"""Scenarios of compactions and vacuums, also while an attempt is about to commit."""

from dataclasses import replace

from tests.faults.scene import DAY, Scene
from tests.faults.script import Script

__all__ = [
    "chain_without_compaction",
    "chain_without_faults",
    "compaction_commits_before_an_increment",
    "compaction_commits_before_deletions",
    "compaction_follows_a_killed_increment",
    "deletions_are_committed_before_a_compaction",
    "increment_commits_before_a_compaction",
    "increment_commits_before_a_quarantine_compaction",
    "plans_are_deleted_while_an_increment_is_unfinished",
    "quarantine_compaction_commits_before_an_increment",
    "quarantine_compaction_is_killed",
    "vacuum_keeps_named_versions",
    "vacuum_lists_parts_that_are_reused",
    "vacuum_meets_new_parts",
    "vacuum_meets_reused_parts",
]


def chain_without_compaction(scene: Scene) -> None:
    """Follow every state of the source, so that parts lose rows several times, and vacuum in between."""
    for state in range(len(scene.chain)):
        scene.change_source(state)
        scene.finish()
        for _ in range(2):  # the first one deletes only the markers, which protect the files that they name
            scene.age()
            scene.vacuum()
        scene.check(finished=True)


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
    _compact_before_a_commit(scene)


def compaction_commits_before_deletions(scene: Scene) -> None:
    """Compact while an attempt is about to commit a wave that deletes rows of parts."""
    _finish_three_states(scene)
    _compact_before_a_commit(scene)


def _compact_before_a_commit(scene: Scene) -> None:
    scene.finish()
    scene.change_source(scene.state + 1)
    with scene.start(Script(gates=(("log-table", 1),))) as attempt:
        scene.reach(attempt)
        scene.compact()
        scene.check(finished=False)
        attempt.proceed()
        scene.ended(attempt)
    scene.finish()


def increment_commits_before_a_compaction(scene: Scene) -> None:
    """Let an increment replace parts while a compaction is about to replace them."""
    _commit_before_a_compaction(scene)


def deletions_are_committed_before_a_compaction(scene: Scene) -> None:
    """Let an increment delete rows of parts while a compaction is about to replace them."""
    _finish_three_states(scene)
    _commit_before_a_compaction(scene)


def _commit_before_a_compaction(scene: Scene) -> None:
    scene.finish()
    scene.change_source(scene.state + 1)
    with scene.start(Script(work="compact", gates=(("log-compact", 1),))) as compaction:
        scene.reach(compaction)
        scene.finish()
        compaction.proceed()
        scene.ended(compaction)
    scene.finish()


def _finish_three_states(scene: Scene) -> None:
    """Write parts with rows of several files, of which the next increment replaces one."""
    for state in range(3):
        scene.change_source(state)
        scene.finish()
        if state == 1:
            scene.compact()


def compaction_follows_a_killed_increment(scene: Scene) -> None:
    """Compact the parts that a finished cell of a killed attempt would replace."""
    scene.finish()
    scene.change_source(1)
    with scene.start(Script(gates=(("commit", 1),))) as killed:
        scene.reach(killed)
    scene.compact()
    scene.finish()


def quarantine_compaction_is_killed(scene: Scene) -> None:
    """Kill a compaction before its commit to the quarantine, then repeat it twice."""
    _give_waves_several_quarantine_parts(scene)
    scene.finish()
    with scene.start(Script(work="compact", gates=(("log-compact-quarantine", 1),))) as compaction:
        scene.reach(compaction)
    scene.check(finished=True)
    for _ in range(2):
        scene.compact()
        scene.check(finished=True)
    scene.age()
    scene.vacuum()
    scene.check(finished=True)


def increment_commits_before_a_quarantine_compaction(scene: Scene) -> None:
    """Let an increment commit bad rows while a compaction is about to replace parts of the quarantine."""
    _give_waves_several_quarantine_parts(scene)
    scene.finish()
    with scene.start(Script(work="compact", gates=(("log-compact-quarantine", 1),))) as compaction:
        scene.reach(compaction)
        scene.change_source(1)
        scene.finish()
        compaction.proceed()
        scene.ended(compaction)
    scene.check(finished=True)


def quarantine_compaction_commits_before_an_increment(scene: Scene) -> None:
    """Compact while an attempt is about to commit the bad rows of a wave."""
    scene.finish()
    scene.change_source(1)
    with scene.start(Script(gates=(("log-quarantine", 1),))) as attempt:
        scene.reach(attempt)
        scene.compact()
        scene.check(finished=False)
        attempt.proceed()
        scene.ended(attempt)
    scene.finish()
    scene.compact()
    scene.check(finished=True)


def plans_are_deleted_while_an_increment_is_unfinished(scene: Scene) -> None:
    """Delete old plans, links and epochs after some increments, the last of which was killed, then resume it."""
    last = len(scene.chain) - 1
    for state in range(last):
        scene.change_source(state)
        scene.finish()
    scene.change_source(last)
    with scene.start(Script(gates=(("commit", 1),))) as killed:
        scene.reach(killed)
    for _ in range(2):  # the first one shortens the chain, the second one deletes the plans that it leaves out
        scene.age()
        scene.vacuum()
        scene.check(finished=False)
    scene.finish()


def _give_waves_several_quarantine_parts(scene: Scene) -> None:
    scene.job = replace(scene.job, buckets=4)
