"""Scenarios of sources that change between attempts and during them, and of plans that are given up."""

from pathlib import Path

from tests.faults.scene import Scene
from tests.faults.script import Script

__all__ = [
    "plan_commits_before_it_is_given_up",
    "plan_is_abandoned_between_its_waves",
    "plan_is_superseded_during_its_commit",
    "source_changes_before_the_plan_is_saved",
    "source_changes_while_it_is_read",
    "source_returns_to_an_earlier_state",
    "superseded_plan_is_resumed",
]


def source_returns_to_an_earlier_state(scene: Scene) -> None:
    """Bring rows back that were deleted from parts whose other rows are still in the table."""
    for state in (0, 1, 2, 1):
        scene.change_source(state)
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
