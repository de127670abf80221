"""Following publications in the background."""

import threading

from lsr_prod.errors import ArtifactError
from lsr_prod.serving.follow import Follower


def test_a_follower_continues_after_a_failure_and_reports_it():
    steps, problems, done = iter([True, None, False]), [], threading.Event()

    def refresh():
        problems.append(follower.problem)
        step = next(steps, "end")
        if step == "end":
            done.set()
            return False
        if step is None:
            raise ArtifactError("shards are missing")
        return step

    follower = Follower(refresh, 0.01)
    assert done.wait(10)
    follower.stop()
    assert problems[:4] == [None, None, "ArtifactError: shards are missing", None]


def test_a_follower_stops():
    calls = []
    follower = Follower(lambda: bool(calls.append(1)), 0.01)
    follower.stop()
    count = len(calls)
    assert threading.active_count() < 50
    threading.Event().wait(0.05)
    assert len(calls) == count
