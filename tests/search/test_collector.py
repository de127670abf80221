"""Requests that wait for a thread travel together."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from lsr_prod.search.server import Collector


class _Counting(Collector[int, int]):
    """A collector that records how many requests each thread gets."""

    def __init__(self, run: Callable[[int], int], threads: int, *, small_s: float = 0.001) -> None:
        super().__init__(run, threads, "test", small_s=small_s)
        self.batches: list[int] = []

    def _work(self, loop, batch, started) -> None:  # type: ignore[no-untyped-def]
        self.batches.append(len(batch))
        super()._work(loop, batch, started)


def test_requests_that_wait_are_collected() -> None:
    opened = threading.Event()

    def run(number: int) -> int:
        if number == -1:
            opened.wait(10)
        return 2 * number

    async def ask() -> list[int]:
        one = _Counting(run, 1)
        assert await one.run(0) == 0  # fast, so that more of its kind are worth collecting
        first = asyncio.create_task(one.run(-1))
        await asyncio.sleep(0.05)
        rest = [asyncio.create_task(one.run(number)) for number in range(40)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in rest)
        rest[7].cancel()
        opened.set()
        assert await first == -2
        found = await asyncio.gather(*rest, return_exceptions=True)
        assert isinstance(found.pop(7), asyncio.CancelledError)
        assert found == [2 * number for number in range(40) if number != 7]
        one.close()
        return one.batches

    batches = asyncio.run(ask())
    assert batches[:2] == [1, 1]
    assert len(batches) < 30


@pytest.mark.parametrize("waits", [True, False])
def test_a_request_that_is_cancelled_before_its_turn_does_not_run(waits: bool) -> None:
    began, opened = threading.Event(), threading.Event()
    ran: list[int] = []

    def run(number: int) -> int:
        ran.append(number)
        if number == 0:
            began.set()
            opened.wait(10)
        return number

    async def ask() -> None:
        one = Collector(run, 1, "test")
        one._each_s = 1e-5  # so that all requests that wait are one batch
        tasks = [asyncio.create_task(one.run(number)) for number in range(1 if waits else 12)]
        await asyncio.to_thread(began.wait, 10)
        tasks += [asyncio.create_task(one.run(number)) for number in range(len(tasks), 12)]
        await asyncio.sleep(0)
        for task in tasks[2:]:
            task.cancel()
        found = await asyncio.gather(*tasks[2:], return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in found)
        assert len(one._waiting) == waits  # a queue of those that left would grow without a limit
        opened.set()
        assert await asyncio.gather(*tasks[:2]) == [0, 1]
        assert await one.run(12) == 12
        one.close()

    asyncio.run(ask())
    assert ran == [0, 1, 12]


@pytest.mark.parametrize(("small_s", "together"), [(10.0, 1), (0.0, 3)])
def test_small_requests_run_in_one_thread(small_s: float, together: int) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def run(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001)
        with lock:
            running -= 1
        return number

    async def ask() -> None:
        one = Collector(run, 3, "test", small_s=small_s)
        for _ in range(20):
            assert await asyncio.gather(*(one.run(number) for number in range(6))) == list(range(6))

    asyncio.run(ask())
    assert most == together


def test_slow_requests_are_not_collected() -> None:
    def run(number: int) -> int:
        time.sleep(0.03)
        return number

    async def ask() -> list[int]:
        one = _Counting(run, 2)
        assert await asyncio.gather(*(one.run(number) for number in range(8))) == list(range(8))
        return one.batches

    assert asyncio.run(ask()) == [1] * 8


def test_an_error_reaches_only_the_one_whose_request_fails() -> None:
    def run(number: int) -> float:
        return 1 / number

    async def ask() -> None:
        one = Collector(run, 1, "test")
        for _ in range(2):
            found = await asyncio.gather(*(one.run(number) for number in (1, 0, 2)), return_exceptions=True)
            assert isinstance(found.pop(1), ZeroDivisionError)
            assert found == [1.0, 0.5]

    asyncio.run(ask())
