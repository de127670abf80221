"""Cost as work grows: 1, 4 and 16 shards of a million documents x 20 terms, built one by one, searched as one index.

    python -m benchmarks.search.scale [--folder .bench] [--shards 1 4 16] [--chunks 16]
                                      [--terms 20] [--query-terms 7] [--splade QUERIES.jsonl.gz]
                                      [--threads 1] [--processes 1]

A shard holds ``chunks`` x 65,536 documents of the invented topics (``benchmarks.search.topics``), or mixtures of real
query vectors with ``--splade``; its vectors are deleted after the build. The sizes are searched in turn, the same
queries in slices of 64, k=10 and 100, by one thread or by several at the same time (``--threads 1 2``). ``--processes``
draw and build shards. Prints a table for each k and number of threads, and for the first of both
``RESULT {json}``: ``ns_per_posting_spread`` is the largest over the smallest of the sizes' p50 per median number of
postings read, less 1, and ``memory_per_document_spread`` the same of the resident bytes a document that opening and
searching added; both are to stay within 0.2.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product, repeat
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.search.data import KS, Collection, Spec, draw, draw_queries, make_rows, save
from benchmarks.search.race import SLICE, Contestant, Engine, percentiles, start
from benchmarks.search.topics import CHUNK
from lsr_prod.jobs.terminal.shell import print_result

OURS = Contestant(
    "ours",
    "benchmarks.search.ours",
    "Ours",
    options={"min_terms": 1, "overlap_threshold": 0.0},
)
TERMS, QUERY_TERMS = 20, 7


@dataclass(slots=True)
class Size:
    """What was measured of so many shards."""

    shards: int
    documents: int
    build_s: float
    build_peak: int
    disk: dict[str, int]
    open_ms: float
    engine: Engine
    before: dict[str, int]
    times: dict[tuple[int, int], list[float]] = field(default_factory=dict)  # by k and threads
    after: dict[str, int] = field(default_factory=dict)
    ns_per_posting: float = 0.0
    postings: float = 0.0

    @property
    def memory_per_document(self) -> float:
        """Resident bytes that opening and searching added."""
        return (self.after["rss"] - self.before["rss"]) / self.documents


def main(argv: Sequence[str]) -> int:
    """Build the shards, search 1, 4 and 16 of them, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(".bench"))
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--chunks", type=int, default=16, help="of 65,536 documents in a shard")
    parser.add_argument("--terms", type=int, default=TERMS, help="terms of a document")
    parser.add_argument("--query-terms", type=int, default=QUERY_TERMS, help="terms of a query")
    parser.add_argument("--splade", type=Path, default=None, help="real query vectors, .jsonl.gz")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="that search at the same time")
    parser.add_argument("--processes", type=int, default=1, help="that draw and build")
    parser.add_argument("--min-terms", type=int, default=1, help="terms that a document must share")
    asked = parser.parse_args(argv)
    contestant = replace(OURS, options={**OURS.options, "min_terms": asked.min_terms})
    asked.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=asked.folder) as scratch, ExitStack() as stack:
        folder = Path(scratch)
        spec = Spec("scale", asked.chunks * CHUNK, asked.terms, asked.query_terms, asked.splade)
        numbers = range(max(asked.shards))
        with ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool:
            builds = pool.map(
                build, repeat(contestant), repeat(folder), numbers, repeat(spec), (n == numbers[-1] for n in numbers)
            )
            built = list(builds)
        rows = Collection(built[-1][0])
        sizes = []
        for shards in asked.shards:
            engine = stack.enter_context(start(contestant, rows, asked.query_terms))
            opened = engine("open", folders=[str(folder / f"index{shard}") for shard in range(shards)])
            took = [seconds for _, seconds, _ in built[:shards]]
            peak = max(peak for _, _, peak in built[:shards])
            documents = shards * len(rows)
            sizes.append(
                Size(shards, documents, sum(took), peak, opened["sizes"], opened["ms"], engine, opened["before"])
            )
        search(sizes, len(rows.queries(asked.query_terms)), asked.threads)
    for k, threads in sizes[0].times:
        title = f"{asked.terms} terms, {asked.query_terms}-term queries, k={k}, threads: {threads}"
        print_sizes(sizes, title, (k, threads))
    speeds, memories = [s.ns_per_posting for s in sizes], [s.memory_per_document for s in sizes]
    print_result(
        {
            "documents": [s.documents for s in sizes],
            "p50_us": [round(percentiles(s.times[KS[0], asked.threads[0]])[0], 1) for s in sizes],
            "ns_per_posting": [round(speed, 3) for speed in speeds],
            "ns_per_posting_spread": round(max(speeds) / min(speeds) - 1, 3),
            "memory_per_document": [round(memory, 1) for memory in memories],
            "memory_per_document_spread": round(max(memories) / min(memories) - 1, 3),
        }
    )
    return 0


def build(contestant: Contestant, folder: Path, shard: int, spec: Spec, last: bool) -> tuple[Path, float, int]:
    """Draw and index one shard in a process of its own: its rows' folder, seconds, and the process's peak memory."""
    rows = folder / f"rows{shard}"
    rows.mkdir()
    whole = replace(spec, documents=(shard + 1) * spec.documents)
    make_rows(rows, draw(whole, first=shard * spec.documents // CHUNK), spec)
    queries = draw_queries(whole)
    for part in ("offsets", "terms", "weights"):
        save(rows / f"queries{spec.query_terms}_{part}.npy", getattr(queries, part))
    with start(contestant, Collection(rows), spec.query_terms) as engine:
        (folder / f"index{shard}").mkdir()
        took = engine("build", folder=str(folder / f"index{shard}"))
    if not last:  # whose rows stay: an engine asks for their number
        shutil.rmtree(rows)
    print(json.dumps({"shard": shard, "seconds": round(took["seconds"], 2)}), flush=True)
    return rows, took["seconds"], took["peak_rss"]


def search(sizes: Sequence[Size], queries: int, threads: Sequence[int]) -> None:
    """Every query on every size, slice by slice, after each was asked once; the first slice is not timed."""
    slices = [list(range(first, min(first + SLICE, queries))) for first in range(0, queries, SLICE)]
    for k in KS:
        for size in sizes:
            size.engine("prepare", k=k)
            for numbers in slices:
                size.engine("ask", numbers=numbers, k=k, keep=False)
        for numbers, each, size in product(slices[1:], threads, sizes):
            asked = size.engine("ask", numbers=numbers, k=k, keep=False, threads=each)
            size.times.setdefault((k, each), []).extend(ns / 1e3 for ns in asked["ns"])
    for size in sizes:
        size.after = size.engine("rss")
        touched = size.engine("touched", numbers=list(range(SLICE, queries)))["postings"]
        size.postings = median(touched)
        size.ns_per_posting = 1e3 * median(size.times[KS[0], threads[0]]) / max(1.0, size.postings)


def print_sizes(sizes: Sequence[Size], title: str, asked: tuple[int, int]) -> None:
    """The table of one number of hits and threads."""
    table = Table(title=title, title_justify="left")
    names = (
        "documents",
        "build s",
        "peak MB",
        "bytes/doc on disk",
        "open ms",
        "p50 us",
        "p95 us",
        "p99 us",
        "postings",
    )
    for name in names:
        table.add_column(name, justify="right")
    for name in ("ns a posting", "resident MB", "resident bytes/doc", "not mapped MB"):
        table.add_column(name, justify="right")
    for size in sizes:
        p50, p95, p99 = percentiles(size.times[asked])
        disk = " + ".join(f"{count / size.documents:.1f} {name}" for name, count in size.disk.items())
        cells = [f"{size.documents:,}", f"{size.build_s:.1f}", f"{size.build_peak / 1e6:,.0f}", disk]
        cells += [f"{size.open_ms:.1f}", f"{p50:,.0f}", f"{p95:,.0f}", f"{p99:,.0f}", f"{size.postings:,.0f}"]
        cells += [f"{size.ns_per_posting:.2f}", f"{size.after['rss'] / 1e6:,.0f}", f"{size.memory_per_document:.1f}"]
        table.add_row(*cells, f"{size.after['anonymous'] / 1e6:,.0f}")
    Console(width=200).print(table)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
