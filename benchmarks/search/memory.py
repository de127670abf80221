"""What does a query cost when an index is larger than the memory that its process may use?

    python -m benchmarks.search.memory --splade QUERIES.jsonl.gz [--documents 1000000]

Builds a published index and searches it with real query vectors (7 terms). A process per cap opens it in a control
group of its own (memory controller of cgroup v1 or v2, root), after the page cache was dropped. The working set is what
the group has after all queries without a cap: pages of the index, and memory of the process from then on. Every process
answers all queries once, then again with a clock. Pages are read from the disk of the machine, whose speed decides the
figures. Prints a table and ``RESULT {json}``: ``p50_us``, ``p99_us``, ``anon_mb`` and ``file_mb`` (resident, libraries
included), ``group_mb``, and ``ratio`` (p50 to that without a cap), by share of the working set.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.search.data import Collection, default_specs, make
from benchmarks.search.published import Published
from lsr_prod.jobs.terminal.shell import print_result

SHARES = (1.0, 0.85, 0.7, 0.55)
QUERY_TERMS, K = 7, 10
NO_CAP = 1 << 40


def main(argv: Sequence[str]) -> int:
    """Measure every share and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="collections and the index")
    parser.add_argument("--splade", type=Path, required=True, help="real query vectors, .jsonl.gz")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--cap", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    (spec,) = (spec for spec in default_specs(asked.splade, asked.documents) if spec.name == "splade7")
    collection = make(spec, asked.folder)
    index = asked.folder / "capped" / collection.digest
    if asked.cap is not None:
        print(json.dumps(measure(collection, index, asked.cap)))
        return 0
    if not (index / "publications").exists():
        index.mkdir(parents=True, exist_ok=True)
        Published.build(collection, index, {})
    free = start(argv, NO_CAP)
    working_set = free["group_mb"] * (1 << 20)
    found = {"all": free} | {f"{share:.0%}": start(argv, int(share * working_set)) for share in SHARES[1:]}
    for row in found.values():
        row["ratio"] = round(row["p50_us"] / free["p50_us"], 2)
    table = Table(title=f"{len(collection):,} documents, working set {working_set / 1e6:.0f} MB", title_justify="left")
    for name in ("memory", *free):
        table.add_column(name, justify="right")
    for name, row in found.items():
        table.add_row(name, *(f"{value:g}" for value in row.values()))
    Console(width=120).print(table)
    print_result(found)
    return 0


def start(argv: Sequence[str], cap: int) -> dict[str, Any]:
    """Measure in a process with a cap in bytes."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")
    command = [sys.executable, "-m", "benchmarks.search.memory", *argv, "--cap", str(cap)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(output.splitlines()[-1]))


def measure(collection: Collection, index: Path, cap: int) -> dict[str, float]:
    """Answer all queries twice inside the cap, the second time with a clock."""
    usage = enter_group(cap)
    engine = Published(collection, index, {"call": "vector", "min_terms": 1, "overlap_threshold": 0.0})
    queries = collection.queries(QUERY_TERMS)
    asked = [engine.prepare(*queries[i], K) for i in range(len(queries))]
    for query in asked:
        engine.query(query, K)
    times = []
    for query in asked:
        before = time.perf_counter_ns()
        engine.query(query, K)
        times.append(time.perf_counter_ns() - before)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    anon, file = (int(status[name].split()[0]) / 1024 for name in ("RssAnon", "RssFile"))
    p50, p99 = np.percentile(times, (50, 99)) / 1e3
    found = {"p50_us": float(p50), "p99_us": float(p99), "anon_mb": anon, "file_mb": file}
    found["group_mb"] = int(usage.read_text()) / (1 << 20)
    return {name: round(value, 1) for name, value in found.items()}


def enter_group(cap: int) -> Path:
    """Move this process into a new control group; returns the file of its usage."""
    root = Path("/sys/fs/cgroup/memory")
    old = root.exists()
    group = (root if old else Path("/sys/fs/cgroup")) / f"lsr-prod-{os.getpid()}"
    group.mkdir()
    (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(cap))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    return group / ("memory.usage_in_bytes" if old else "memory.current")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
