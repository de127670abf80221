"""Filters inside the scan: what 0.1, 10 and 50 % of the documents cost against all of them, exact.

    python -m benchmarks.search.filters [--folder .bench] [--documents 1000000]

The invented topics of ``benchmarks.search.data``, one shard, an int64 attribute drawn at random. The same queries run
without a filter and with each, in turns. Masks are computed before the clock starts, as they are for every query but
the first; that first time is printed. Every answer is compared with the filtered brute force over the vectors. Prints a
table and ``RESULT {json}``: p50 with a filter over p50 without.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.search.data import Collection, default_specs, make
from benchmarks.search.ours import Ours, build_folder
from benchmarks.search.race import percentiles
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.search import field
from lsr_prod.search.shard.shard_reader import ShardReader

SHARES = (1, 100, 500)  # thousandths of the documents
PASSES = 5


def main(argv: Sequence[str]) -> int:
    """Build, check, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(".bench"))
    parser.add_argument("--documents", type=int, default=None)
    asked = parser.parse_args(argv)
    spec = next(one for one in default_specs(None, asked.documents) if one.name == "topics20")
    collection = make(spec, asked.folder)
    lots = np.random.default_rng(7).integers(0, 1000, len(collection))
    with tempfile.TemporaryDirectory(dir=asked.folder) as scratch:
        folder = Path(scratch)
        build_folder(collection, folder, {"attribute.lot": pa.array(lots)})
        engine = Ours(collection, folder, {"min_terms": 1, "overlap_threshold": 0.0})
        times, first_ms = measure(engine, collection, spec.query_terms, lots)
    print_times(times, first_ms)
    plain = percentiles(times[1000])[0]
    print_result(
        {f"p50_ratio_{share / 10:g}_percent": round(percentiles(times[share])[0] / plain, 3) for share in SHARES}
    )
    return 0


def measure(
    engine: Ours, collection: Collection, query_terms: int, lots: np.ndarray
) -> tuple[dict[int, list[float]], dict[int, float]]:
    """Microseconds of every query by share, and milliseconds of the first query with each filter."""
    reader: ShardReader = engine.readers[0]
    queries = collection.queries(query_terms)
    asked = [engine.prepare(*queries[i], 10) for i in range(len(queries))]
    filters = {1000: None, **{share: field("lot") < share for share in SHARES}}
    first_ms = {}
    for share, expression in filters.items():
        start = time.perf_counter()
        reader.match(replace(asked[0], filter=expression), 0.0)
        first_ms[share] = (time.perf_counter() - start) * 1e3
        check(reader, collection, [(queries[i], replace(asked[i], filter=expression)) for i in range(20)], lots, share)
    times: dict[int, list[float]] = {share: [] for share in filters}
    for _ in range(PASSES):
        for query in asked:
            for share, expression in filters.items():
                one = replace(query, filter=expression)
                start = time.perf_counter_ns()
                reader.match(one, 0.0)
                times[share].append((time.perf_counter_ns() - start) / 1e3)
    return times, first_ms


def check(reader: ShardReader, collection: Collection, queries: Sequence, lots: np.ndarray, share: int) -> None:
    """Scores equal those of a brute force over the allowed documents."""
    for (terms, weights), asked in queries:
        scores = np.zeros(len(collection), np.float32)
        order = np.lexsort((terms, -weights))
        for term, weight in zip(terms[order], weights[order], strict=True):
            rows, places = np.nonzero(collection.terms == term)
            scores[rows] += np.float32(weight) * collection.impacts[rows, places].astype(np.float32)
        expected = np.sort(scores[lots < share])[::-1][: asked.k]
        found = reader.match(asked, 0.0).scores
        assert found == expected[expected > 0].tolist(), "the filtered answer differs from the brute force"


def print_times(times: dict[int, list[float]], first_ms: dict[int, float]) -> None:
    """The table."""
    table = Table(title="k=10, one thread, microseconds", title_justify="left")
    for name in ("documents that pass", "p50", "p95", "p99", "p50 / without", "first query ms"):
        table.add_column(name, justify="right")
    plain = percentiles(times[1000])[0]
    for share, found in times.items():
        name = "all, no filter" if share == 1000 else f"{share / 10:g} %"
        cells = [f"{value:,.0f}" for value in percentiles(found)]
        table.add_row(name, *cells, f"{percentiles(found)[0] / plain:.2f}", f"{first_ms[share]:.1f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
