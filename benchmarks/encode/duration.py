"""How long does a run of billions of documents take on spot nodes, and how much does that vary?

    python -m benchmarks.encode.duration [--documents 10000000000] [--actors 1000] [--documents-per-s 100]
        [--spot-hours 8] [--seeds 20]

A discrete simulation. The plan, its waves, cells and blocks are those of the real planner, and the rules are those of
``encoding.pipeline``: two waves are open, blocks of the next wave start when the same block of the wave before is
finished, waves are read and committed beside the encoding, a late block is issued again and its first result counts,
and a block whose node was lost is issued again without its finished cells. Random are the durations of cells, slow
nodes, and the times at which spot nodes are lost; a lost node comes back after ``--replace-minutes``.

Prints hours without any disturbance, then their median, 5 % and 95 % quantile over the seeds, and one line
``RESULT {json}``.
"""

import argparse
import heapq
import statistics
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from benchmarks.encode.simulated_nights import Corpus
from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.encoding.actors.actor import BlockDurations
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs, make_plan
from lsr_prod.encoding.waves import blocks_of_cells
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table

_BLOCKS_PER_ACTOR = 4
_OPEN_WAVES = _CLOSED_WAVES = 2


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the simulated cluster is like.

    Attributes:
        actors: number of encoders.
        actors_per_node: encoders that are lost together.
        documents_per_s: of an encoder.
        sigma: standard deviation of the logarithm of the duration of a cell.
        slow_share: share of nodes that are slow.
        slow_factor: how many times longer they need.
        spot_hours: mean time until a node is lost; 0: never.
        replace_s: until a lost node is replaced.
        read_s: to read a wave with an idle cluster.
        commit_s: to commit a wave.
        reread_s: of an encoder, to get the rows of a block whose node was lost.
    """

    actors: int
    actors_per_node: int
    documents_per_s: float
    sigma: float
    slow_share: float
    slow_factor: float
    spot_hours: float
    replace_s: float
    read_s: float
    commit_s: float
    reread_s: float


@dataclass(slots=True)
class Block:
    """A block of a wave, with the seconds of its cells that are not finished."""

    wave: int
    number: int
    cells: list[float]
    delay: float = 0.0
    done: bool = False
    copies: int = 0


@dataclass(slots=True)
class Simulation:
    """One run. Times are in seconds since its start."""

    plan: Plan
    conditions: Conditions
    rng: np.random.Generator
    now: float = 0.0
    busy: float = 0.0
    lost_nodes: int = 0
    events: list[tuple[float, int, str, int, int]] = field(default_factory=list)
    waiting: deque[Block] = field(default_factory=deque)
    running: dict[int, tuple[Block, float, float]] = field(default_factory=dict)  # actor -> block, start, pace
    idle: set[int] = field(default_factory=set)
    opened: dict[int, list[Block]] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)  # unfinished blocks of an open wave
    unread: int = 0
    reading: bool = False
    committing: bool = False
    closed: deque[int] = field(default_factory=deque)
    committed: int = 0
    durations: BlockDurations = field(default_factory=BlockDurations)
    pace: dict[int, float] = field(default_factory=dict)  # of a node
    generation: dict[int, int] = field(default_factory=dict)  # of an actor: events of lost ones are stale
    count: int = 0

    def run(self) -> float:
        """Return the duration of the run."""
        given = self.conditions
        for node in range(-(-given.actors // given.actors_per_node)):
            self._start_node(node)
        self._read_next()
        while self.committed < self.plan.waves:
            self.now, _, kind, subject, generation = heapq.heappop(self.events)
            if kind == "block":
                if self.generation[subject] == generation:
                    self._finish(subject)
            else:
                {"lost": self._lose, "node": self._start_node, "read": self._open, "commit": self._commit}[kind](
                    subject
                )
            self._issue()
        return self.now

    def _at(self, seconds: float, kind: str, subject: int, generation: int = 0) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, kind, subject, generation))

    def _actors_of(self, node: int) -> range:
        first = node * self.conditions.actors_per_node
        return range(first, min(first + self.conditions.actors_per_node, self.conditions.actors))

    def _start_node(self, node: int) -> None:
        given = self.conditions
        self.pace[node] = given.slow_factor if self.rng.random() < given.slow_share else 1.0
        for actor in self._actors_of(node):
            self.generation[actor] = self.generation.get(actor, 0) + 1
            self.idle.add(actor)
        if given.spot_hours:
            self._at(self.rng.exponential(given.spot_hours * 3600), "lost", node)

    def _lose(self, node: int) -> None:
        self.lost_nodes += 1
        for actor in self._actors_of(node):
            self.idle.discard(actor)
            self.generation[actor] += 1
            if actor in self.running:
                block, start, pace = self.running.pop(actor)
                block.copies -= 1
                ends = start + block.delay + np.cumsum(block.cells) * pace
                if not block.done and not block.copies:
                    block.cells = [cell for cell, end in zip(block.cells, ends, strict=True) if end > self.now]
                    block.delay = self.conditions.reread_s
                    self.waiting.appendleft(block)
        self._at(self.conditions.replace_s, "node", node)

    def _read_next(self) -> None:
        room = len(self.left) < _OPEN_WAVES and len(self.closed) + self.committing < _CLOSED_WAVES
        if self.unread < self.plan.waves and room and not self.reading:
            self.reading = True
            self._at(self.conditions.read_s, "read", self.unread)

    def _open(self, wave: int) -> None:
        plan, given = self.plan, self.conditions
        cells = plan.cells_of(wave)
        documents = plan.wave_shares()[wave] * self.documents / len(cells)
        blocks = []
        for number, block in enumerate(blocks_of_cells(cells, plan.buckets, _BLOCKS_PER_ACTOR * given.actors)):
            noise = self.rng.lognormal(-(given.sigma**2) / 2, given.sigma, len(block))
            blocks.append(Block(wave, number, (documents / given.documents_per_s * noise).tolist()))
        self.opened[wave], self.left[wave] = blocks, len(blocks)
        before = self.opened.get(wave - 1)
        self.waiting += [block for block in blocks if before is None or before[block.number].done]
        self.unread, self.reading = wave + 1, False
        self._read_next()

    @property
    def documents(self) -> float:
        """Documents of the corpus."""
        return self.plan.source_bytes / Corpus(0).row_bytes

    def _issue(self) -> None:
        while self.idle and self.waiting:
            self._start(self.idle.pop(), self.waiting.popleft())
        if self.idle and self.running:
            late = [
                (start, block)
                for block, start, _ in self.running.values()
                if block.copies == 1 and self.durations.is_late(self.now - start)
            ]
            for _, block in sorted(late, key=lambda each: each[0])[: len(self.idle)]:
                self._start(self.idle.pop(), block)

    def _start(self, actor: int, block: Block) -> None:
        pace = self.pace[actor // self.conditions.actors_per_node]
        seconds = block.delay + sum(block.cells) * pace
        block.copies += 1
        self.running[actor] = (block, self.now, pace)
        self._at(seconds, "block", actor, self.generation[actor])

    def _finish(self, actor: int) -> None:
        block, start, pace = self.running.pop(actor)
        self.idle.add(actor)
        block.copies -= 1
        self.busy += sum(block.cells) * pace
        self.durations.add(self.now - start)
        if block.done:
            return
        block.done = True
        following = self.opened.get(block.wave + 1)
        if following is not None:
            self.waiting.append(following[block.number])
        self.left[block.wave] -= 1
        if not self.left[block.wave]:
            del self.left[block.wave]
            self.opened.pop(block.wave - 1, None)
            self.closed.append(block.wave)
            self._commit_next()
            self._read_next()

    def _commit_next(self) -> None:
        if self.closed and not self.committing:
            self.committing = True
            self._at(self.conditions.commit_s, "commit", self.closed.popleft())

    def _commit(self, wave: int) -> None:
        self.committed, self.committing = wave + 1, False
        self._commit_next()
        self._read_next()


def main() -> int:
    """Simulate, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10**10)
    parser.add_argument("--actors", type=int, default=1000)
    parser.add_argument("--actors-per-node", type=int, default=8)
    parser.add_argument("--documents-per-s", type=float, default=100.0, help="of an encoder")
    parser.add_argument("--sigma", type=float, default=0.1, help="of the logarithm of the duration of a cell")
    parser.add_argument("--slow-share", type=float, default=0.01, help="share of nodes that are slow")
    parser.add_argument("--slow-factor", type=float, default=4.0, help="how many times longer they need")
    parser.add_argument("--spot-hours", type=float, default=8.0, help="mean time until a node is lost; 0: never")
    parser.add_argument("--replace-minutes", type=float, default=5.0, help="until a lost node is replaced")
    parser.add_argument("--read-mb-per-s", type=float, default=20_000.0, help="of the whole cluster")
    parser.add_argument("--commit-s", type=float, default=30.0, help="of a wave")
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    source, encode = SourceSettings(paths=["s3://corpus/"]), EncodeSettings(bundle="bundle", table="table")
    inputs = PlanInputs(source, encode, "b", {}, lambda: given.actors)
    plan = make_plan(Corpus(given.documents).files(), inputs)
    read_s = plan.largest_wave_bytes / 1e6 / given.read_mb_per_s

    def conditions(spot_hours: float, slow_share: float, sigma: float) -> Conditions:
        return Conditions(
            given.actors, given.actors_per_node, given.documents_per_s, sigma, slow_share, given.slow_factor,
            spot_hours, given.replace_minutes * 60, read_s, given.commit_s, 60.0,
        )  # fmt: skip

    undisturbed = Simulation(plan, conditions(0, 0, 0), np.random.default_rng(0)).run() / 3600
    disturbed, busy, lost = [], [], []
    for seed in range(given.seeds):
        run = Simulation(plan, conditions(given.spot_hours, given.slow_share, given.sigma), np.random.default_rng(seed))
        disturbed.append(run.run() / 3600)
        busy.append(run.busy / (run.now * given.actors))
        lost.append(run.lost_nodes)
    low, high = np.quantile(disturbed, [0.05, 0.95])
    figures = {
        "waves": plan.waves,
        "parts": plan.sizes()["parts"],
        "ideal_hours": round(given.documents / given.documents_per_s / given.actors / 3600, 2),
        "undisturbed_hours": round(undisturbed, 2),
        "hours": round(statistics.median(disturbed), 2),
        "hours_low": round(float(low), 2),
        "hours_high": round(float(high), 2),
        "busy_share": round(statistics.median(busy), 4),
        "lost_nodes": round(statistics.median(lost)),
    }
    print_table(f"{given.documents:,} documents, {given.actors:,} encoders", figures)
    print_result(figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
