"""Pool of encoder actors that lives as long as the job, follows the cluster, and retries blocks of dead actors.

An actor reserves its cores; read tasks of the next wave run within them (``node_tasks``). An actor whose node has no
room for it yet gets no block, and neither does one whose node has announced its end. While blocks wait and the cluster
has fewer encoders than it may have, the pool asks for nodes (``demand``). A block that runs far longer than the others
is given to an idle actor too; the first result counts.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from lsr_prod import errors, logs
from lsr_prod.encoding.actors.actor import (
    BLOCKS_AT_A_TIME,
    LOST,
    BlockDurations,
    Member,
    ModelSettings,
    ask,
    start_member,
)
from lsr_prod.encoding.actors.places import Demand, PoolSize
from lsr_prod.encoding.results import BlockResult

log = logs.get_log(__name__)

_IDLE_S = 0.02  # without a call that runs
_ATTEMPTS = 4  # per block; all but the first run the model in a child process
_ASKED_CALLS = 8  # of those that run, the oldest, to tell reading from encoding
_LOOK_S = 5.0  # between two looks at the nodes of the cluster
Outcome = BlockResult | RayError
"""Result of a block, or the error of Ray that ended its call; the loss of an actor is not reported but tried again."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockCall:
    """A block of a wave to encode."""

    wave: int  # number of the wave
    block: int  # number of the block in the wave
    task: Any  # reference of the ``WaveTask``
    rows: tuple[Any, ...]  # references of the tables of the block, one per read task
    extra: tuple[Any, ...] = ()  # further arguments of ``EncoderActor.encode``


@dataclass(frozen=True, slots=True)
class PoolActivity:
    """State of a pool at one moment."""

    ready: int  # encoders that run
    starting: int  # encoders that start, or wait for a node
    encoding: bool  # whether a running call has its rows
    reading: bool  # whether calls run, but only such whose rows are still read


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    """A call that an actor has."""

    member: Member
    call: BlockCall
    failed: int
    since: float


class EncoderPool:
    """Actors that encode blocks. Use as a context manager; it ends the actors.

    Attributes:
        size: number and placement when the pool was made.
        blocks: blocks that each node has encoded.
        peak: highest number of encoders that ran at the same time.
    """

    def __init__(
        self, size: PoolSize, model: ModelSettings, places: Callable[[], tuple[str, ...]] | None = None
    ) -> None:
        """Start the actors."""
        self.size = size
        self.blocks: Counter[str] = Counter()
        self.peak = 0
        self._model, self._places, self._looked = model, places, time.monotonic()
        self._members = [self._start(node) for node in size.nodes]
        self._queue: deque[tuple[BlockCall, int]] = deque()  # (call, failed attempts)
        self._running: dict[Any, _Running] = {}
        self._second: dict[Any, Member] = {}  # calls whose block has a result of another call
        self._durations, self._demand = BlockDurations(), Demand(size)
        self._stopped = False
        self._without_room: float | None = None  # since when no node has had room for an actor

    def __enter__(self) -> "EncoderPool":
        return self

    def __exit__(self, *_: object) -> None:
        self._demand.set(0)
        for member in self._members:
            ray.kill(member.actor)
        log.info("encoder pool closed", extra={"fields": {"blocks_by_node": dict(self.blocks)}})

    @property
    def unfinished(self) -> int:
        """Number of blocks that were submitted and are not finished."""
        return len(self._queue) + len(self._running)

    def nodes(self) -> tuple[str, ...]:
        """Return the Ray node id of every encoder that runs; it may be called from another thread."""
        if self._stopped:
            raise errors.EncoderLostError("the encoders were stopped")
        return tuple(member.node for member in list(self._members) if member.ready and not member.leaving)

    def activity(self) -> PoolActivity:
        """Return the state of the encoders; it may be called from another thread."""
        members, calls = list(self._members), [running.call for running in list(self._running.values())]
        ready = sum(member.ready for member in members)
        encoding = any(_has_rows(call) for call in calls[:_ASKED_CALLS])
        return PoolActivity(ready, len(members) - ready, encoding, bool(calls) and not encoding)

    def submit(self, call: BlockCall) -> None:
        """Add a block to the queue; ``wait`` gives it to an actor."""
        self._queue.append((call, 0))

    def stop(self) -> None:
        """End the calls of other threads that wait for an encoder."""
        self._stopped = True

    def look_again(self) -> None:
        """Look at the nodes of the cluster with the next ``wait``: some may have left."""
        self._looked = -math.inf

    def cancel(self, wave: int) -> None:
        """Forget the blocks of this and of later waves. A call that runs ends unheard; its markers are valid."""
        self._queue = deque((call, failed) for call, failed in self._queue if call.wave < wave)
        for reference, running in list(self._running.items()):
            if running.call.wave >= wave:
                running.member.load -= 1
                del self._running[reference]

    def wait(self, timeout_s: float) -> list[tuple[BlockCall, Outcome]]:
        """Give blocks to actors, and return those that are finished; the block of a dead actor is tried again."""
        self._follow_cluster()
        self._dispatch()
        starting = [member.starting for member in self._members if member.starting is not None]
        if not self._running and not starting:
            time.sleep(min(timeout_s, _IDLE_S))
            return []
        ready, _ = ray.wait([*self._running, *starting], num_returns=1, timeout=min(timeout_s, _LOOK_S))
        if self._running:
            ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        # A block that was given to two actors leaves both calls with its first result.
        outcomes = (self._outcome(reference) for reference in ready if reference in self._running)
        return [outcome for outcome in outcomes if outcome is not None]

    def _dispatch(self) -> None:
        for member in self._members:
            if not member.ready:
                ask(member)
        self.peak = max(self.peak, sum(member.ready for member in self._members))
        if self._second:
            for reference in ray.wait(list(self._second), num_returns=len(self._second), timeout=0)[0]:
                self._second.pop(reference).load -= 1
        while self._queue and (free := self._least_loaded()) is not None and free.load < BLOCKS_AT_A_TIME:
            call, failed = self._queue.popleft()
            self._give(free, call, failed)
        if not self._queue and (idle := self._least_loaded()) is not None and not idle.load:
            self._give_late_block(idle)

    def _give(self, member: Member, call: BlockCall, failed: int) -> None:
        reference = member.actor.encode.remote(call.task, *call.extra, *call.rows, isolated=failed > 0)
        self._running[reference] = _Running(member, call, failed, time.monotonic())
        member.load += 1

    def _give_late_block(self, idle: Member) -> None:
        """Give the block to an idle actor that has run far longer than the others; each block at most once."""
        issued = Counter(running.call for running in self._running.values())
        for running in list(self._running.values()):
            seconds = time.monotonic() - running.since
            if issued[running.call] == 1 and self._durations.is_late(seconds) and _has_rows(running.call):
                fields = {"wave": running.call.wave, "block": running.call.block, "seconds": round(seconds, 1)}
                log.warning("late block issued again", extra={"fields": {**fields, "node": running.member.node}})
                self._give(idle, running.call, running.failed)
                return

    def _other_calls(self, call: BlockCall) -> list[Any]:
        return [reference for reference, running in self._running.items() if running.call is call]

    def _outcome(self, reference: Any) -> tuple[BlockCall, Outcome] | None:
        """Return a finished block; None: its actor died, and the block is in the queue again."""
        running = self._running.pop(reference)
        member, call, attempt = running.member, running.call, running.failed + 1
        member.load -= 1
        try:
            result: BlockResult = ray.get(reference)
        except LOST as error:
            fields = {"wave": call.wave, "block": call.block, "attempt": attempt, "error": str(error).split("\n")[0]}
            log.warning("encoder actor lost", extra={"fields": fields})
            member.ready = False
            self.look_again()
            if self._other_calls(call):
                return None
            if attempt == _ATTEMPTS:
                raise errors.EncoderLostError(
                    f"encoder actors died {_ATTEMPTS} times on one block of wave {call.wave}; look for the "
                    "cause in Ray's logs (out of memory?), then run the job again"
                ) from error
            self._queue.append((call, attempt))
            return None
        except RayError as error:
            return call, error
        self.blocks[result.node] += 1
        self._durations.add(time.monotonic() - running.since)
        for other in self._other_calls(call):
            self._second[other] = self._running.pop(other).member
        return call, result

    def _follow_cluster(self) -> None:
        """Add actors on new nodes and retire those of nodes that left; looks at the cluster every few seconds."""
        if self._places is None or time.monotonic() < self._looked + _LOOK_S:
            return
        self._looked = time.monotonic()
        wanted = Counter(self._places())
        have = Counter(member.node for member in self._members if not member.leaving)
        added = [self._start(node) for node in (wanted - have).elements()]
        surplus = have - wanted
        for member in self._members:
            if surplus[member.node] > 0 and not member.leaving:
                surplus[member.node] -= 1
                member.leaving = True
        left = [member for member in self._members if member.leaving and not member.load]
        for member in left:
            ray.kill(member.actor)
        self._members = [member for member in [*self._members, *added] if member not in left]
        if added or left:
            fields = {"added": len(added), "left": len(left), "actors": len(self._members)}
            log.info("encoder pool changed", extra={"fields": fields})
        asked = max(self.size.fewest, min(self.size.most or 0, self.unfinished))
        self._demand.set(asked - wanted.total())
        self._check_room()

    def _check_room(self) -> None:
        """Stop a job whose cluster has had no node for an encoder for a long time."""
        if any(member.ready and not member.leaving for member in self._members):
            self._without_room = None
            return
        limit_s = self.size.settings.node_wait_seconds
        if self._without_room is None:
            self._without_room = time.monotonic()
            log.info("waiting for encoders", extra={"fields": {"actors": len(self._members), "limit_s": limit_s}})
        elif time.monotonic() > self._without_room + limit_s:
            raise errors.EncoderLostError(
                f"no encoder could start for {limit_s:g} s; add nodes with room for one, then run the job again"
            )

    def _start(self, node: str) -> Member:
        return start_member(self.size, self._model, node, pinned=self._places is not None)

    def _least_loaded(self) -> Member | None:
        able = [member for member in self._members if member.ready and not member.leaving]
        return min(able, key=lambda member: member.load, default=None)


def _has_rows(call: BlockCall) -> bool:
    """Return whether the read tasks of a call are finished."""
    rows = list(call.rows)
    return not rows or len(ray.wait(rows, num_returns=len(rows), timeout=0, fetch_local=False)[0]) == len(rows)
