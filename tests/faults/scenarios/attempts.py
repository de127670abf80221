"""Scenarios of attempts at one plan that are killed or stalled, and of commits, parts and rows that fail."""

import itertools
import random

from tests.faults import damage
from tests.faults.scene import Scene
from tests.faults.script import Script

__all__ = [
    "a_row_is_lost_on_the_way_to_its_cell",
    "attempts_read_different_rows",
    "commit_succeeds_but_reports_an_error",
    "deletion_vectors_are_damaged_before_their_commit",
    "increments_are_killed_before_a_commit",
    "killed_ahead_of_its_commit",
    "killed_before_a_commit",
    "older_decides_again",
    "older_encodes_ahead_of_a_newer_commit",
    "older_stalls_before_its_bad_rows",
    "older_stalls_between_its_commits",
    "older_stalls_until_newer_is_done",
    "parts_are_damaged_before_their_commit",
]


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


def killed_ahead_of_its_commit(scene: Scene) -> None:
    """Kill an attempt that has encoded two waves, and encode the first again: the model accepts another row now."""
    with scene.start(Script(flaky=_repeated_text(scene), gates=(("commit", 1),))) as attempt:
        scene.reach(attempt)
    scene.delete_markers(0)
    scene.finish()


def older_encodes_ahead_of_a_newer_commit(scene: Scene) -> None:
    """Let an attempt encode the second wave after its own first wave, when a newer one has committed another first."""
    with scene.start(Script(flaky=_repeated_text(scene), gates=(("read", 2),))) as older:
        scene.reach(older)
        scene.delete_markers(0)
        with scene.start(Script(gates=(("after-commit", 1),))) as newer:
            scene.reach(newer)
        older.proceed()
        scene.ended(older)
    scene.finish()


def commit_succeeds_but_reports_an_error(scene: Scene) -> None:
    """Let the store lose the answer to a commit, in the first plan and in an increment."""
    scene.run(Script(landed=4))
    scene.finish()
    scene.change_source(1)
    scene.run(Script(landed=4))
    scene.finish()


def parts_are_damaged_before_their_commit(scene: Scene) -> None:
    """Truncate or delete the parts of the table after they are written; the attempt continues or is killed."""
    rng = random.Random(1)
    table, quarantine = scene.job.stores
    for state, (strike, killed) in enumerate(((damage.tear, False), (damage.remove, True), (damage.tear, True))):
        scene.change_source(state)
        old = set(table.names())
        with scene.start(Script(gates=(("commit", 1),))) as attempt:
            scene.reach(attempt)
            left = {*old, *quarantine.names(), *(name for name in table.names() if "deletion_vector_" in name)}
            while struck := strike(scene.job, rng, left):
                left.add(struck.name)
            if not killed:
                attempt.proceed()
                scene.ended(attempt)
        scene.check(finished=False)
        scene.finish()


def deletion_vectors_are_damaged_before_their_commit(scene: Scene) -> None:
    """Truncate or delete the deletion vectors of an increment; its attempt continues or is killed."""
    rng = random.Random(2)
    table, quarantine = scene.job.stores
    scene.finish()
    for state, (strike, killed) in enumerate(((damage.tear, True), (damage.remove, False), (damage.tear, False)), 1):
        scene.change_source(state)
        with scene.start(Script(gates=(("commit", 1),))) as attempt:
            scene.reach(attempt)
            left = {name for store in (table, quarantine) for name in store.names() if "deletion_vector_" not in name}
            while struck := strike(scene.job, rng, left):
                left.add(struck.name)
            if not killed:
                attempt.proceed()
                scene.ended(attempt)
        scene.check(finished=False)
        scene.finish()


def increments_are_killed_before_a_commit(scene: Scene) -> None:
    """Kill attempts at two increments before the commit of each table; the next ones have other bad rows."""
    words = map(str, itertools.count())
    scene.finish()
    for state in (1, 2):
        scene.change_source(state)
        for number, moment in enumerate(("log-quarantine", "log-table")):
            with scene.start(Script(flaky=next(words), gates=((moment, 1),))) as attempt:
                if attempt.until_gate() and number == 0:
                    scene.delete_markers(0)
            scene.check(finished=False)
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


def _repeated_text(scene: Scene) -> str:
    """Return the word of a model that fails on one row of the first file whose id is repeated in the second file."""
    rows = scene.chain.expected([0]).rows
    repeated = {row.doc_id for row in rows if row.source == "1.jsonl" and row.reason == "duplicate_id"}
    return next(f"={row.text}" for row in rows if row.source == "0.jsonl" and row.doc_id in repeated)


def _two_words(scene: Scene) -> tuple[str, str]:
    words = scene.chain.words()
    return next(words), next(words)
