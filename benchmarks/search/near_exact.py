"""Recall and time of near-exact search by ``scan_share``, against Seismic, on long documents.

    python -m benchmarks.search.near_exact --splade QUERIES.jsonl.gz [--peer-python PYTHON] [--documents N]
                                           [--passes 7] [--shares 1 0.9 ...] [--builds 1]

Documents have 120 terms and are mixtures of real query vectors (``benchmarks.search.data``); the queries are the other
half of the file, cut to the 25 heaviest terms. The engines of one k answer slices of 64 queries in turns, one thread,
after every query was asked once. The time of a query is the median of its passes, so that other programs on the
machine change p95 little. Recall is measured against the exact answer of the whole query. Seismic is built with its
defaults; its query settings are those with the lowest p50 for each band of recall, measured on the same queries.
Prints a table and ``RESULT {json}``: p50, p95 and recall by name and k.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.search.contestants import ARRAYS, PUBLIC, SEISMIC_BUILDS, ours
from benchmarks.search.data import KS, Collection, Spec, make
from benchmarks.search.race import Contestant, Row, race, tune
from lsr_prod.jobs.terminal.shell import print_result

DOCUMENTS, TERMS, QUERY_TERMS = 1_000_000, 120, 25
SHARES = (1.0, 0.9, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5)
GRID = {"cut": (2, 3, 4, 5, 6, 8, 12), "heap_factor": (0.7, 0.8, 0.9, 1.0)}
BUILDS = 1  # of SEISMIC_BUILDS: its defaults; the next has longer lists


def main(argv: Sequence[str]) -> int:
    """Measure every share and Seismic, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="collections and stored indexes")
    parser.add_argument("--splade", type=Path, required=True, help="real query vectors, .jsonl.gz")
    parser.add_argument("--peer-python", default=None, help="python of the environment of Seismic")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="values of scan_share")
    parser.add_argument("--builds", type=int, default=BUILDS, help="number of builds of Seismic to try")
    parser.add_argument("--passes", type=int, default=7, help="number of timed runs of each query")
    asked = parser.parse_args(argv)
    collection = make(Spec("splade120", asked.documents, TERMS, QUERY_TERMS, asked.splade), asked.folder)
    contestants, made = mine(asked.shares), set[Path]()
    if asked.peer_python is not None:
        contestants += seismic(asked.peer_python, collection, asked.folder, asked.builds, made)
    rows: list[Row] = []
    for k in KS:  # in turns, because every process of Seismic holds its index in memory
        here = [replace(each, ks=(k,)) for each in contestants if k in each.ks]
        found = race(here, collection, QUERY_TERMS, asked.folder, passes=asked.passes, seconds=0, made=made)
        for row in found:
            row.times[k] = np.median(np.reshape(row.times[k], (asked.passes, -1)), axis=0).tolist()
        print_rows(k, found)
        rows += found
    print_result({f"{row.contestant.name} k={k}": values(row, k) for row in rows for k in row.times})
    return 0


def mine(shares: Sequence[float]) -> list[Contestant]:
    """Return the public calls with every share."""
    return [
        replace(each, name=f"{each.name}, scan_share={share:g}", options={**each.options, "scan_share": share})
        for each in ours()
        if each.name in (PUBLIC, ARRAYS)
        for share in shares
    ]


def seismic(python: str, collection: Collection, folder: Path, builds: int, made: set[Path]) -> list[Contestant]:
    """Return Seismic with the settings that are fastest in each band of recall."""
    base = Contestant("seismic", "benchmarks.search.seismic", "Seismic", python=python)
    tried = [{"build": build} for build in SEISMIC_BUILDS[:builds]]
    return tune(base, tried, GRID, collection, QUERY_TERMS, folder, made=made)


def values(row: Row, k: int) -> dict[str, float]:
    """Return the values of the RESULT line."""
    return {"p50": round(row.p50(k), 1), "p95": round(row.p95(k), 1), "recall": round(row.recall[k], 4)}


def print_rows(k: int, rows: Sequence[Row]) -> None:
    """Print the measurements for one number of hits."""
    table = Table(title=f"k={k}: microseconds, one thread", title_justify="left")
    for name in ("engine", f"recall@{k}", "p50", "p95", "build CPU s", "MB", "settings"):
        table.add_column(name, justify="left" if name in ("engine", "settings") else "right", no_wrap=True)
    for row in rows:
        contestant = row.contestant
        settings = str({**contestant.build, **contestant.options}) if contestant.name.startswith("seismic") else ""
        cells = [contestant.name, f"{row.recall[k]:.4f}", f"{row.p50(k):,.0f}", f"{row.p95(k):,.0f}"]
        table.add_row(*cells, f"{row.build_s:.0f}", f"{sum(row.sizes.values()) / 1e6:,.0f}", settings)
    Console(width=200).print(table)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
