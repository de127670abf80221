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

__all__ = ["BANDS", "ENOUGH", "Contestant", "Engine", "Row", "opened", "percentiles", "race", "start", "tune"]

ROOT = Path(__file__).resolve().parents[2]
SLICE = 64
BANDS = (0.90, 0.95, 0.99, 0.997)  # recall for which approximate engines are tuned
ENOUGH = BANDS[-1]  # recall that an approximate engine has to reach in ratios
_BUILDS = 2  # raise it when builds of the same index are timed in another way


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
    batch_qps: dict[int, float] = field(default_factory=dict)
    touched_postings: list[int] | None = None
    touched_bytes: list[int] | None = None

    def p50(self, k: int) -> float:
        """Return the median time in microseconds."""
        return percentiles(self.times[k])[0]

    def p95(self, k: int) -> float:
        """Return the 95th percentile of the time in microseconds."""
        return percentiles(self.times[k])[1]


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
        identity = [_BUILDS, collection.digest, contestant.engine, engine("version")["version"], contestant.build]
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
    *,
    made: set[Path],
) -> list[Contestant]:
    """Return, per k and band of recall, the settings with the lowest p50 that reach the band.

    If no settings reach any band, those with the best recall are returned. Settings that win several bands are one
    contestant; its name has the highest of them.

    Args:
        base: the engine; ``build`` and ``options`` are completed.
        builds: settings of the index to try.
        grid: values to try of each query option.
        collection: documents and queries.
        query_terms: terms per query.
        folder: benchmark folder.
        made: see ``opened``.
    """
    tried: dict[int, list[tuple[float, float, Contestant]]] = {k: [] for k in KS}
    for build in builds:
        first = {**base.options, **{name: values[0] for name, values in grid.items()}}
        contestant = replace(base, build={**base.build, **build}, options=first)
        with opened(contestant, collection, query_terms, folder, made=made) as (engine, _):
            for k, values in product(KS, product(*grid.values())):
                options = {**first, **dict(zip(grid, values, strict=True))}
                engine("set", options=options)
                engine("prepare", k=k)
                times = engine("ask", numbers=list(range(SLICE, query_count(collection, query_terms))), k=k, keep=True)
                recall = engine("recall", k=k, at=k)["recall"]
                tried[k].append((recall, percentiles(times["ns"])[0], replace(contestant, options=options, ks=(k,))))
    chosen = []
    for k, rows in tried.items():
        reached: dict[int, float] = {}
        for band in BANDS:
            good = [i for i, row in enumerate(rows) if row[0] >= band]
            if good:
                reached[min(good, key=lambda i: rows[i][1])] = band
        if not reached:
            reached[max(range(len(rows)), key=lambda i: rows[i][0])] = 0.0
        for i, band in reached.items():
            recall, ns, contestant = rows[i]
            name = f"{base.name} k={k} >={band:g}" if band else f"{base.name} k={k} best"
            settings = {**contestant.build, **contestant.options}
            print(f"{name}: {settings}; recall {recall:.4f}, p50 {ns / 1e3:.0f} us")
            chosen.append(replace(contestant, name=name))
    return chosen


def race(
    contestants: Sequence[Contestant],
    collection: Collection,
    query_terms: int,
    folder: Path,
    *,
    passes: int,
    seconds: float,
    made: set[Path],
) -> list[Row]:
    """Measure all contestants.

    Args:
        contestants: engines and settings.
        collection: documents and queries.
        query_terms: terms per query.
        folder: benchmark folder, which holds ``indexes``.
        passes: times that every query is timed.
        seconds: duration of each throughput measurement; 0: none.
        made: see ``opened``.
    """
    rows, engines = [], []
    with ExitStack() as stack:
        for contestant in contestants:
            engine, row = stack.enter_context(opened(contestant, collection, query_terms, folder, made=made))
            rows.append(row)
            engines.append(engine)
        queries = query_count(collection, query_terms)
        for k in KS:
            pairs = [(row, engine) for row, engine in zip(rows, engines, strict=True) if k in row.contestant.ks]
            if pairs:
                _timed_rounds(pairs, queries, k, passes)
        for _ in range(2 if seconds else 0):
            for row, engine in zip(rows, engines, strict=True):
                for threads in (1, 2):
                    found = engine("throughput", threads=threads, seconds=seconds, k=row.contestant.ks[0])["qps"]
                    row.qps[threads] = max(found, row.qps.get(threads, 0.0))
                    batches = engine("batches", threads=threads, seconds=seconds, k=row.contestant.ks[0])["qps"]
                    if batches is not None:
                        row.batch_qps[threads] = max(batches, row.batch_qps.get(threads, 0.0))
        for row, engine in zip(rows, engines, strict=True):
            row.rss = engine("rss")["rss"]
            found = engine("touched", numbers=list(range(SLICE, queries)))
            row.touched_postings, row.touched_bytes = found["postings"], found["bytes"]
    return rows


def _timed_rounds(pairs: Sequence[tuple[Row, Engine]], queries: int, k: int, passes: int) -> None:
    """Time slice by slice, starting with a different engine each time.

    Every query is asked once before: our pages are verified then, and peers have read their index when they are open.
    The first slice is asked only then.
    """
    slices = [list(range(first, min(first + SLICE, queries))) for first in range(0, queries, SLICE)]
    for _, engine in pairs:
        engine("prepare", k=k)
    for row, engine in pairs:
        for numbers in slices:
            engine("ask", numbers=numbers, k=k, keep=False)
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
