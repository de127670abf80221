"""Admission: requests wait as long as they can be answered soon."""

import asyncio
import time
from contextlib import ExitStack, suppress

import pytest

from lsr_prod.search import server as module
from lsr_prod.search.server import Admission


def answers(one: Admission, clock: pytest.MonkeyPatch, each_s: float, count: int) -> None:
    """Requests that are answered one after the other."""
    now = time.monotonic()
    for _ in range(count):
        clock.setattr(module.time, "monotonic", lambda now=now: now)
        with one.admit():
            now += each_s
            clock.setattr(module.time, "monotonic", lambda now=now: now)


@pytest.mark.parametrize(("each_s", "admitted"), [(0.001, 50), (0.004, 50), (0.09, 6), (2.0, 1)])
def test_requests_wait_if_they_are_answered_in_time(monkeypatch: pytest.MonkeyPatch, each_s: float, admitted) -> None:
    one = Admission(50, most_s=0.5)
    answers(one, monkeypatch, each_s, 30)
    with ExitStack() as stack:
        while one.refusal() is None:
            stack.enter_context(one.admit())
        assert one.admitted == admitted
        assert ("limit" if admitted == 50 else "would wait for") in one.refusal()
    assert one.admitted == 0


def test_one_slow_search_refuses_others_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Admission(50, most_s=0.5)
    answers(one, monkeypatch, 0.001, 500)
    answers(one, monkeypatch, 0.4, 1)
    answers(one, monkeypatch, 0.001, 300)
    with ExitStack() as stack:
        for _ in range(50):
            assert one.refusal() is None
            stack.enter_context(one.admit())


def test_cancelled_requests_do_not_count_as_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Admission(50, most_s=0.5)
    answers(one, monkeypatch, 0.09, 30)
    for _ in range(100):
        now = time.monotonic()
        with suppress(asyncio.CancelledError), one.admit():
            monkeypatch.setattr(module.time, "monotonic", lambda now=now: now + 0.02)
            raise asyncio.CancelledError
    with ExitStack() as stack:
        while one.refusal() is None:
            stack.enter_context(one.admit())
        assert one.admitted == 6


def test_answers_in_bursts_count_as_often_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Admission(50, most_s=0.5)
    for _ in range(100):
        answers(one, monkeypatch, 0.2, 1)
        answers(one, monkeypatch, 0.0, 9)  # 20 ms for each
    with ExitStack() as stack:
        while one.refusal() is None:
            stack.enter_context(one.admit())
        assert 23 <= one.admitted <= 28


def test_refusals_are_held_for_a_moment_as_long_as_there_are_few() -> None:
    one = Admission(3, most_s=0.5)

    async def run() -> list[float]:
        async def refused() -> float:
            start = time.perf_counter()
            await one.pause()
            return time.perf_counter() - start

        return await asyncio.gather(*(refused() for _ in range(5)))

    waited = asyncio.run(run())
    assert [seconds > 0.15 for seconds in waited] == [True] * 3 + [False] * 2
