"""Requests that wait for a thread travel together."""

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from lsr_prod.search.server import Collector


def test_requests_that_wait_are_collected() -> None:
    batches: list[int] = []
    opened = threading.Event()

    def run(numbers: Sequence[int]) -> list[int]:
        batches.append(len(numbers))
        if numbers[0] == -1:
            opened.wait(10)
        return [2 * number for number in numbers]

    async def ask() -> None:
        one = Collector(run, 1, "test")
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

    asyncio.run(ask())
    assert batches[:2] == [1, 1]
    assert len(batches) < 30


@pytest.mark.parametrize(("small_s", "together"), [(10.0, 1), (0.0, 3)])
def test_small_requests_run_in_one_thread(small_s: float, together: int) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def run(numbers: Sequence[int]) -> Sequence[int]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001 * len(numbers))
        with lock:
            running -= 1
        return numbers

    async def ask() -> None:
        one = Collector(run, 3, "test", small_s=small_s)
        for _ in range(20):
            assert await asyncio.gather(*(one.run(number) for number in range(6))) == list(range(6))

    asyncio.run(ask())
    assert most == together


def test_slow_requests_are_not_collected() -> None:
    batches: list[int] = []

    def run(numbers: Sequence[int]) -> Sequence[int]:
        batches.append(len(numbers))
        time.sleep(0.03 * len(numbers))
        return numbers

    async def ask() -> None:
        one = Collector(run, 2, "test")
        assert await asyncio.gather(*(one.run(number) for number in range(8))) == list(range(8))

    asyncio.run(ask())
    assert batches == [1] * 8


def test_an_error_reaches_those_who_wait() -> None:
    def run(_: Sequence[int]) -> list[int]:
        raise ZeroDivisionError

    async def ask() -> None:
        one = Collector(run, 1, "test")
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await one.run(1)

    asyncio.run(ask())
