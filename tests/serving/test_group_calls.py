"""Calls to a shard group: at once while none is on its way, else together."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from lsr_prod.errors import QueryError
from lsr_prod.serving.groups import GroupCalls


class Replica:
    """Counts calls; they return when ``opened`` is set."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.alone = 0
        self.together: list[int] = []
        self.lost = False
        self.call = SimpleNamespace(remote=self._double)
        self.run_calls = SimpleNamespace(remote=self._run_calls)

    async def _double(self, number: int) -> int:
        self.alone += 1
        await self.opened.wait()
        return 2 * number

    async def _run_calls(self, calls: list[tuple[int]]) -> list[Any]:
        self.together.append(len(calls))
        if self.lost:
            raise ActorDiedError
        return [QueryError("zero") if number == 0 else 2 * number for (number,) in calls]


def test_calls_that_wait_travel_together() -> None:
    async def run() -> None:
        replica = Replica()
        calls = GroupCalls(replica)  # type: ignore[arg-type]
        first = asyncio.create_task(calls.call(1))
        await asyncio.sleep(0)
        rest = [asyncio.create_task(calls.call(number)) for number in range(5)]
        await asyncio.sleep(0)
        rest[4].cancel()
        replica.opened.set()
        assert await first == 2
        found = await asyncio.gather(*rest, return_exceptions=True)
        assert isinstance(found[0], QueryError)
        assert found[1:4] == [2, 4, 6]
        assert (replica.alone, replica.together) == (1, [4])
        assert await calls.call(7) == 14
        assert replica.alone == 2

    asyncio.run(run())


def test_a_call_that_hangs_delays_no_other() -> None:
    async def run() -> None:
        replica = Replica()
        calls = GroupCalls(replica)  # type: ignore[arg-type]
        hanging = asyncio.create_task(calls.call(1))
        await asyncio.sleep(0)
        start = time.perf_counter()
        assert await calls.call(2) == 4
        assert time.perf_counter() - start < 0.5
        assert not hanging.done()
        hanging.cancel()

    asyncio.run(run())


def test_a_lost_replica_is_the_error_of_all_its_calls() -> None:
    async def run() -> None:
        replica = Replica()
        calls = GroupCalls(replica)  # type: ignore[arg-type]
        asyncio.get_running_loop().call_later(0.1, replica.opened.set)
        first = asyncio.create_task(calls.call(1))
        await asyncio.sleep(0)
        replica.lost = True
        for error in await asyncio.gather(calls.call(2), calls.call(3), return_exceptions=True):
            assert isinstance(error, ActorDiedError)
        assert await first == 2

    asyncio.run(run())


def test_an_error_is_raised_where_the_call_was_made() -> None:
    async def run() -> None:
        replica = Replica()
        calls = GroupCalls(replica)  # type: ignore[arg-type]
        first = asyncio.create_task(calls.call(1))
        await asyncio.sleep(0)
        with pytest.raises(QueryError, match="zero"):
            await calls.call(0)
        first.cancel()

    asyncio.run(run())
