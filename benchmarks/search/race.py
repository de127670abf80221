"""Rounds of timed queries: each engine, in its own process, answers the same slice of queries before the next slice.

Indexes are stored under the digest of the documents, the engine, its version and its build settings, together with the
build time, and reused; only our own index is rebuilt in every run.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.data import KS, Collection

__all__ = ["Contestant", "Engine", "Row", "opened", "percentiles", "race", "start", "tune"]

ROOT = Path(__file__).resolve().parents[2]
SLICE = 64
ENOUGH = 0.997  # recall that an approximate engine has to reach


@dataclass(frozen=True, slots=True)
class Contestant:
    """An engine and its settings.

    Attributes:
        name: label of the table row.
        module: module of the engine class.
        engine: name of the engine class.
        build: options that the index depends on.
        options: query options.
        python: interpreter that runs the engine.
        fresh: rebuild the index in every run.
        ks: numbers of hits to measure.
    """

    name: str
    module: str
    engine: str
    build: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    python: str = sys.executable
    fresh: bool = False
    ks: tuple[int, ...] = KS


@dataclass(slots=True)
class Row:
    """Measurements of a contestant; ``times`` are in microseconds."""

    contestant: Contestant
    documents: int
    build_s: float = 0.0
    build_peak_rss: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    open_ms: float = 0.0
    before: Mapping[str, int] = field(default_factory=dict)
    rss: int = 0
    times: dict[int, list[float]] = field(default_factory=dict)
    recall: dict[int, float] = field(default_factory=dict)
    qps: dict[int, float] = field(default_factory=dict)
    touched_postings: list[int] | None = None
    touched_bytes: list[int] | None = None

    def p50(self, k: int) -> float:
        """Return the median time in microseconds."""
        return percentiles(self.times[k])[0]


class Engine:
    """A worker process."""

    def __init__(self, contestant: Contestant, collection: Collection, query_terms: int) -> None:
        spec = {"module": contestant.module, "engine": contestant.engine, "query_terms": query_terms}
        spec |= {"collection": str(collection.folder), "options": {**contestant.build, **contestant.options}}
        # One thread in every library, because the benchmark times one query on one core.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
        threads["RUST_BACKTRACE"] = "0"
        self._process = subprocess.Popen(
            [contestant.python, "-m", "benchmarks.search.worker", json.dumps(spec)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **threads},
        )
        self.name = contestant.name
        self._answer()

    def __call__(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send one command and return the answer."""
        assert self._process.stdin is not None
        print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        return self._answer()

    def stop(self) -> None:
        """Close the input of the process and wait until it exits."""
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.name} ended unexpectedly; see its error output above")
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def start(contestant: Contestant, collection: Collection, query_terms: int) -> Iterator[Engine]:
    """Start a worker and stop it at the end of the ``with`` block."""
    engine = Engine(contestant, collection, query_terms)
    try:
        yield engine
    finally:
        engine.stop()


@contextmanager
def opened(
    contestant: Contestant, collection: Collection, query_terms: int, folder: Path, *, made: set[Path]
) -> Iterator[tuple[Engine, Row]]:
    """Start a worker and open the contestant's index; build it in a separate process if it is not stored.

    Args:
        contestant: engine and settings.
        collection: documents and queries.
        query_terms: terms per query.
        folder: benchmark folder, which holds ``indexes``.
        made: indexes built in this run, which ``fresh`` contestants share; updated in place.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(start(contestant, collection, query_terms))
        identity = [collection.digest, contestant.engine, engine("version")["version"], contestant.build]
        name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        home = folder / "indexes" / f"{contestant.engine.lower()}-{name}"
        if contestant.fresh and home not in made:
            shutil.rmtree(home, ignore_errors=True)
        made.add(home)
        if not home.exists():
            home.parent.mkdir(exist_ok=True)
            scratch = Path(tempfile.mkdtemp(dir=home.parent))
            (scratch / "index").mkdir()
            took = engine("build", folder=str(scratch / "index"))
            (scratch / "build.json").write_text(json.dumps({**took, "identity": identity}))
            scratch.rename(home)
            # A new process, because memory left over from the build must not count as memory of searching.
            engine = stack.enter_context(start(contestant, collection, query_terms))
        took = json.loads((home / "build.json").read_text())
        found = engine("open", folders=[str(home / "index")])
        yield (
            engine,
            Row(
                contestant,
                len(collection),
                took["seconds"],
                took["peak_rss"],
                found["sizes"],
                found["ms"],
                found["before"],
            ),
        )


def tune(
    base: Contestant,
    builds: Sequence[Mapping[str, Any]],
    grid: Mapping[str, Sequence[Any]],
    collection: Collection,
    query_terms: int,
    folder: Path,
) -> list[Contestant]:
    """Return per k the settings with the lowest p50 at sufficient recall, or with the best recall if none suffices."""
    tried: dict[int, list[tuple[bool, float, Contestant]]] = {k: [] for k in KS}
    for build in builds:
        contestant = replace(base, build={"build": build}, options={name: values[0] for name, values in grid.items()})
        with opened(contestant, collection, query_terms, folder, made=set()) as (engine, _):
            for k, values in product(KS, product(*grid.values())):
                options = dict(zip(grid, values, strict=True))
                engine("set", options=options)
                engine("prepare", k=k)
                times = engine("ask", numbers=list(range(SLICE, query_count(collection, query_terms))), k=k, keep=True)
                share = engine("recall", k=k, at=k)["recall"]
                good = share >= ENOUGH
                rank = percentiles(times["ns"])[0] if good else -share
                tried[k].append(
                    (not good, rank, replace(contestant, options=options, name=f"{base.name} k={k}", ks=(k,)))
                )
    best = [min(rows, key=lambda row: row[:2]) for rows in tried.values()]
    for missed, rank, contestant in best:
        what = f"p50 {rank / 1e3:.0f} us" if not missed else f"no settings reach {ENOUGH}: recall {-rank:.4f}"
        print(f"{contestant.name}: {dict(contestant.options)}, built with {contestant.build['build']}; {what}")
    return [contestant for _, _, contestant in best]


def race(
    contestants: Sequence[Contestant],
    collection: Collection,
    query_terms: int,
    folder: Path,
    *,
    passes: int,
    seconds: float,
) -> list[Row]:
    """Measure all contestants.

    Args:
        contestants: engines and settings.
        collection: documents and queries.
        query_terms: terms per query.
        folder: benchmark folder, which holds ``indexes``.
        passes: times that every query is timed.
        seconds: duration of each throughput measurement.
    """
    rows, engines = [], []
    made: set[Path] = set()
    with ExitStack() as stack:
        for contestant in contestants:
            engine, row = stack.enter_context(opened(contestant, collection, query_terms, folder, made=made))
            rows.append(row)
            engines.append(engine)
        queries = query_count(collection, query_terms)
        for k in KS:
            pairs = [(row, engine) for row, engine in zip(rows, engines, strict=True) if k in row.contestant.ks]
            _rounds(pairs, queries, k, passes)
        for _ in range(2):
            for row, engine in zip(rows, engines, strict=True):
                for threads in (1, 2):
                    found = engine("throughput", threads=threads, seconds=seconds, k=row.contestant.ks[0])["qps"]
                    row.qps[threads] = max(found, row.qps.get(threads, 0.0))
        for row, engine in zip(rows, engines, strict=True):
            row.rss = engine("rss")["rss"]
            found = engine("touched", numbers=list(range(SLICE, queries)))
            row.touched_postings, row.touched_bytes = found["postings"], found["bytes"]
    return rows


def _rounds(pairs: Sequence[tuple[Row, Engine]], queries: int, k: int, passes: int) -> None:
    """Time slice by slice, starting with a different engine each time; the first slice only warms up."""
    slices = [list(range(first, min(first + SLICE, queries))) for first in range(0, queries, SLICE)]
    for _, engine in pairs:
        engine("prepare", k=k)
    for row, engine in pairs:
        engine("ask", numbers=slices[0], k=k, keep=False)
        row.times[k] = []
    for turn in range(passes):
        for number, numbers in enumerate(slices[1:]):
            at = (number + turn) % len(pairs)
            for row, engine in [*pairs[at:], *pairs[:at]]:
                row.times[k] += [ns / 1e3 for ns in engine("ask", numbers=numbers, k=k, keep=turn == 0)["ns"]]
    for row, engine in pairs:
        row.recall[k] = engine("recall", k=k, at=k)["recall"]


def query_count(collection: Collection, query_terms: int) -> int:
    """Return the number of queries."""
    return len(collection.queries(query_terms))


def percentiles(times: Sequence[float]) -> tuple[float, float, float]:
    """Return p50, p95 and p99."""
    p50, p95, p99 = np.percentile(times, (50, 95, 99))
    return float(p50), float(p95), float(p99)
