"""First-stage search: our index against Tantivy, Seismic, BMP, bm25s-style arrays and scipy, on the same vectors.

    python -m benchmarks.search.against_peers [--quick] [--peer-python PYTHON] [--splade QUERIES.jsonl.gz]

Collections: ``benchmarks.search.data``. Each engine runs in its own process with one thread. Queries are shuffled and
sent in slices of 64 to each engine in turn, so that noise of the machine affects all engines equally; the first slice
is a warm-up. Preparing query objects and decoding answers is not timed. Recall is measured against exact scores
without any threshold; documents that tie with the k-th count as relevant. Seismic's settings are tuned on the same
queries that are then timed, for the lowest p50 with recall >= 0.997; "bmp exact, sorted" receives the documents in the
order of their true topics. Prints tables and ``RESULT {json}``. Ratios are ours / theirs, of p50 unless said:
``seismic_p50_ratio_*`` takes the fastest of our rows whose recall is >= 0.997 as well; ``tantivy_msm_p50_ratio`` our
threshold of two terms against minimum-should-match with its hits scored, ``_count`` against counting them;
``bmp_exact_p50_ratio_120`` our exact scan against the faster of BMP's two; ``build_ratio_seismic`` our impact arrays
against Seismic's index, CPU seconds of one thread.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.search.data import KS, Collection, Spec, default_specs, make
from benchmarks.search.limit import Limits, measure_limits
from benchmarks.search.race import ENOUGH, Contestant, Row, percentiles, race, tune
from lsr_prod.jobs.terminal.run import print_result, print_table

EXACT, TWO, RATIO = "ours, any term", "ours, >= 2 terms", "ours, ratio 0.4"
COMPRESSED = "ours compressed"  # a row of the index with compressed ids, where there is one
# The first entry is Seismic's defaults, which cut long lists and summarize coarsely: recall on short vectors is lower.
SEISMIC_BUILDS: tuple[Mapping[str, Any], ...] = (
    {},
    {"max_fraction": 20.0, "summary_energy": 0.7},
    {"max_fraction": 20.0, "summary_energy": 0.5, "centroid_fraction": 0.2},
)
SEISMIC_CUTS = (3, 5, 10, 15)
SEISMIC_HEAP_FACTORS = (0.5, 0.7, 0.8, 0.9, 1.0)


def main(argv: Sequence[str]) -> int:
    """Measure all engines on every collection and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="collections and stored indexes")
    parser.add_argument("--documents", type=int, default=None, help="documents per collection (default: one million)")
    parser.add_argument("--splade", type=Path, default=None, help="real query vectors, .jsonl.gz")
    parser.add_argument("--peer-python", default=None, help="python with pyseismic-lsr and bmp")
    parser.add_argument("--collections", nargs="+", default=None, help="names of the collections to run (default: all)")
    parser.add_argument("--passes", type=int, default=3, help="number of timed runs of each query")
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of each throughput measurement")
    parser.add_argument("--quick", action="store_true", help="20,000 documents, one pass: smoke test")
    asked = parser.parse_args(argv)
    if asked.quick:
        asked.documents, asked.passes, asked.seconds = asked.documents or 20_000, 1, 0.1
    specs = default_specs(asked.splade, asked.documents)
    if asked.splade is None:
        print("no --splade: the collections made from real query vectors are skipped")
    if asked.peer_python is None:
        print("no --peer-python: Seismic and BMP are skipped")
    limits = measure_limits(64 if asked.quick else 512)
    print_table(
        "one thread of this machine",
        {"read in order, GB/s": limits.stream_gb_s, "random read, ns": limits.gather_ns, "add, ns": limits.scatter_ns},
    )
    found: dict[str, dict[str, Row]] = {}
    for spec in specs:
        if asked.collections is None or spec.name in asked.collections:
            collection = make(spec, asked.folder)
            rows = run(spec, collection, asked)
            found[spec.name] = {row.contestant.name: row for row in rows}
            print_rows(spec, rows)
            print_limits(spec, rows, limits)
    print_result(results(found))
    return 0


def run(spec: Spec, collection: Collection, asked: argparse.Namespace) -> list[Row]:
    """Tune Seismic on the collection, then measure all contestants."""
    share = 100 * collection.truth(spec.query_terms, KS)[:, -1].mean() / len(collection)
    print(
        f"\n{spec.name}: {len(collection):,} documents x {spec.terms} terms, {spec.query_terms}-term queries, "
        f"documents {collection.digest[:12]}; {share:.2f} % of them share two or more terms with a query"
    )
    contestants = ours() + peers()
    if asked.peer_python is not None:
        base = Contestant("seismic", "benchmarks.search.seismic", "Seismic", python=asked.peer_python)
        builds = SEISMIC_BUILDS[1:2] if asked.quick else SEISMIC_BUILDS
        cuts = [*[cut for cut in SEISMIC_CUTS if cut < spec.query_terms][-2:], spec.query_terms]
        grid = {"cut": cuts, "heap_factor": SEISMIC_HEAP_FACTORS[1::3] if asked.quick else SEISMIC_HEAP_FACTORS}
        contestants += tune(base, builds, grid, collection, spec.query_terms, asked.folder)
        bmp = Contestant("bmp exact", "benchmarks.search.bmp", "Bmp", {"sorted": False}, python=asked.peer_python)
        contestants += [bmp, replace(bmp, name="bmp exact, sorted", build={"sorted": True})]
    return race(contestants, collection, spec.query_terms, asked.folder, passes=asked.passes, seconds=asked.seconds)


def ours() -> list[Contestant]:
    """Return the contestants of our engine."""
    base = Contestant(EXACT, "benchmarks.search.ours", "Ours", {"compress": False}, fresh=True)
    return [
        replace(base, options={"min_terms": 1, "overlap_threshold": 0.0}),
        replace(base, name=TWO, options={"min_terms": 2, "overlap_threshold": 0.0}),
        replace(base, name=RATIO, options={"min_terms": 1, "overlap_threshold": 0.4}),
        replace(base, name=COMPRESSED, build={"compress": True}, options={"min_terms": 1, "overlap_threshold": 0.0}),
    ]


def peers() -> list[Contestant]:
    """Return the peers that run in our own environment."""
    tantivy = Contestant("tantivy or", "benchmarks.search.peers", "Tantivy", options={"mode": "or"})
    return [
        tantivy,
        replace(tantivy, name="tantivy >= 2, count", options={"mode": "two"}),
        replace(tantivy, name="tantivy >= 2, scored", options={"mode": "two ranked"}),
        Contestant("csc arrays (bm25s)", "benchmarks.search.peers", "Csc"),
        Contestant("scipy", "benchmarks.search.peers", "Scipy"),
    ]


def print_rows(spec: Spec, rows: Sequence[Row]) -> None:
    """Print the measurements of one collection as a table."""
    table = Table(title=f"{spec.name}: microseconds, one thread", title_justify="left")
    names = ["engine", "build s", "bytes/doc", "open ms", "RSS MB", "of it index"]
    for k in KS:
        names += [f"k={k} p50", "p95", "p99", f"recall@{k}"]
    for name in [*names, "q/s", "2 threads", "x"]:
        table.add_column(name, justify="left" if name == "engine" else "right", no_wrap=True)
    for row in rows:
        cells = [row.contestant.name, f"{row.build_s:.1f}", sizes(row)]
        cells += [f"{row.open_ms:.1f}", f"{row.rss / 1e6:,.0f}", f"{(row.rss - row.before['rss']) / 1e6:,.0f}"]
        for k in KS:
            if k in row.times:
                counted = row.contestant.options.get("mode") == "two"
                cells += [f"{value:,.0f}" for value in percentiles(row.times[k])]
                cells.append("-" if counted else f"{row.recall[k]:.4f}")
            else:
                cells += [""] * 4
        cells += [f"{row.qps[1]:,.0f}", f"{row.qps[2]:,.0f}", f"{row.qps[2] / row.qps[1]:.2f}"]
        table.add_row(*cells)
    Console(width=200).print(table)


def sizes(row: Row) -> str:
    """Format bytes per document; for our engine, the matching arrays and the other files separately."""
    parts = dict(row.sizes)
    first = parts.pop(next(iter(parts)))
    return " + ".join(
        [f"{first / row.documents:.1f}", *(f"{size / row.documents:.0f} {name}" for name, size in parts.items())]
    )


def print_limits(spec: Spec, rows: Sequence[Row], limits: Limits) -> None:
    """Compare the p50 of engines that report the bytes they read with the time at memory bandwidth."""
    table = Table(title=f"{spec.name}, k=10: distance to the limit, medians over queries", title_justify="left")
    for name in ("engine", "postings", "KB", "at memory speed us", "p50 us", "p50 / that", "ns a posting"):
        table.add_column(name, justify="left" if name == "engine" else "right")
    for row in rows:
        if row.touched_bytes and row.touched_postings and 10 in row.times:
            floor = limits.stream_us(median(row.touched_bytes))
            postings = median(row.touched_postings)
            cells = [
                f"{postings:,.0f}",
                f"{median(row.touched_bytes) / 1e3:,.0f}",
                f"{floor:.1f}",
                f"{row.p50(10):.0f}",
            ]
            table.add_row(
                row.contestant.name, *cells, f"{row.p50(10) / floor:.1f}", f"{1e3 * row.p50(10) / max(1, postings):.2f}"
            )
    Console(width=200).print(table)


def fastest(rows: Mapping[str, Row], k: int, good: Callable[[str], bool]) -> Row | None:
    """Return the row with the lowest p50 at sufficient recall, or with the best recall if none suffices."""
    mine = [row for name, row in rows.items() if good(name) and k in row.times]
    return min(
        mine,
        key=lambda row: (row.recall[k] < ENOUGH, row.p50(k) if row.recall[k] >= ENOUGH else -row.recall[k]),
        default=None,
    )


def results(found: Mapping[str, Mapping[str, Row]]) -> dict[str, Any]:
    """Return the values of the RESULT line; None for engines that were skipped."""
    values: dict[str, Any] = {}
    for name, rows in found.items():
        suffix = "" if name == "topics20" else f"_{name}"
        for k in KS:
            mine, seismic = fastest(rows, k, is_ours), fastest(rows, k, lambda name: name.startswith("seismic"))
            values[f"seismic_p50_ratio_k{k}{suffix}"] = ratio(mine, seismic, k)
        values[f"tantivy_msm_p50_ratio{suffix}"] = ratio(rows[TWO], rows["tantivy >= 2, scored"], 10)
        values[f"tantivy_msm_count_p50_ratio{suffix}"] = ratio(rows[TWO], rows["tantivy >= 2, count"], 10)
        bmp = min(
            (row for name, row in rows.items() if name.startswith("bmp")), key=lambda row: row.p50(10), default=None
        )
        values["bmp_exact_p50_ratio_120" if name == "topics120" else f"bmp_exact_p50_ratio{suffix}"] = ratio(
            rows[EXACT], bmp, 10
        )
        mine, seismic = fastest(rows, 10, is_ours), fastest(rows, 10, lambda name: name.startswith("seismic"))
        assert mine is not None
        values[f"recall10{suffix}"] = round(mine.recall[10], 4)
        values[f"threads_ratio{suffix}"] = round(mine.qps[2] / mine.qps[1], 2)
        values[f"bytes_per_doc{suffix}"] = per_document(rows, EXACT)
        values[f"bytes_per_doc_compressed{suffix}"] = per_document(rows, COMPRESSED)
        values[f"build_ratio_seismic{suffix}"] = None if seismic is None else round(mine.build_s / seismic.build_s, 4)
    return values


def is_ours(name: str) -> bool:
    """Return True for the name of one of our contestants."""
    return name.startswith("ours")


def ratio(mine: Row | None, theirs: Row | None, k: int) -> float | None:
    """Return our p50 divided by theirs, or None if either is missing."""
    return None if mine is None or theirs is None else round(mine.p50(k) / theirs.p50(k), 4)


def per_document(rows: Mapping[str, Row], name: str) -> float | None:
    """Return the bytes of the matching arrays per document."""
    if name not in rows:
        return None
    return round(rows[name].sizes["matching"] / rows[name].documents, 1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
