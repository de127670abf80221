"""A race of a minute or two that fails when the public calls of search fall behind their recorded ratios to peers.

    python -m benchmarks.search.quick --peer-python PYTHON --splade QUERIES.jsonl.gz [--record]

Measures ``search_vector`` and ``search_arrays`` against exact SINDI on 100,000 documents with real queries of 7 and 25
terms, on 100,000 documents of invented topics, there also against Seismic at recall >= .997, and on 4,000 documents,
where fixed costs decide. Engines answer slices of queries in turns, as in ``benchmarks.search.against_peers``; a ratio
is the median over the passes of our p50 / theirs, lower is better. ``bytes_per_doc`` is not a ratio, and is compared in
the same way.

A value that is more than 15 % above the one in ``recorded_ratios.json`` is measured again, up to twice; it fails if it
never comes back. ``--record`` writes the values instead. They hold for one kind of machine: record them again on
another one, and whenever they become better. Prints a table and ``RESULT {json}``; the exit status is 1 if a value
fails, or if a recorded one is no longer measured.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.search.contestants import ARRAYS, PUBLIC, SINDI_EXACT, exact_sindi, ours
from benchmarks.search.data import KS, Spec, default_specs, make
from benchmarks.search.race import ENOUGH, Contestant, Row, race
from lsr_prod.jobs.terminal.shell import print_result

__all__ = ["RECORDED", "behind", "median_ratio", "values_of"]

RECORDED = Path(__file__).with_name("recorded_ratios.json")
ALLOWED = 1.15  # a value may be that many times the recorded one
DOCUMENTS, SMALL = 100_000, 4_000
PASSES = 9
TRIES = 3
SEISMIC = "seismic"  # with settings that reach the recall on this collection


@dataclass(frozen=True, slots=True)
class Arguments:
    """Where peers, real queries and stored indexes are."""

    python: str
    splade: Path
    folder: Path


def main(argv: Sequence[str]) -> int:
    """Measure, print, and compare or record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="collections and stored indexes")
    parser.add_argument("--splade", type=Path, required=True, help="real query vectors, .jsonl.gz")
    parser.add_argument("--peer-python", required=True, help="python of the peers' environment")
    parser.add_argument("--record", action="store_true", help="write the values that later runs are compared with")
    asked = parser.parse_args(argv)
    arguments = Arguments(asked.peer_python, asked.splade, asked.folder)
    recorded = {} if asked.record else json.loads(RECORDED.read_text())
    measured: dict[str, float] = {}
    for spec in specs(arguments.splade):
        measured |= measure(spec, arguments, recorded)
    print_values(measured, recorded)
    if asked.record:
        RECORDED.write_text(json.dumps(measured, indent=2) + "\n")
    print_result(measured)
    failures = behind(measured, recorded)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def specs(splade: Path) -> list[Spec]:
    """Return the collections."""
    found = {spec.name: spec for spec in default_specs(splade, DOCUMENTS)}
    return [
        found["splade7"],
        found["splade25"],
        found["topics20"],
        replace(found["splade7"], name="small", documents=SMALL),
    ]


def measure(spec: Spec, arguments: Arguments, recorded: Mapping[str, float]) -> dict[str, float]:
    """Measure the values of one collection; measure again while one is behind."""
    collection, made = make(spec, arguments.folder), set[Path]()
    best: dict[str, float] = {}
    for _ in range(TRIES):
        rows = race(
            contestants(spec.name, arguments.python),
            collection,
            spec.query_terms,
            arguments.folder,
            passes=PASSES,
            seconds=0,
            made=made,
        )
        found = values_of(spec.name, {row.contestant.name: row for row in rows})
        best = {name: min(value, best.get(name, value)) for name, value in found.items()}
        if not behind(best, {name: value for name, value in recorded.items() if name in best}):
            break
    return best


def contestants(collection: str, python: str) -> list[Contestant]:
    """Return the public calls, exact SINDI, and Seismic for invented topics."""
    found = [each for each in ours() if each.name in (PUBLIC, ARRAYS)] + [exact_sindi(python)]
    if collection == "topics20":
        build = {"build": {"max_fraction": 20.0, "summary_energy": 0.7}}
        options = {"cut": 7, "heap_factor": 0.7}
        found.append(Contestant(SEISMIC, "benchmarks.search.seismic", "Seismic", build, options, python=python))
    return found


def values_of(collection: str, rows: Mapping[str, Row]) -> dict[str, float]:
    """Return the values of a collection by name.

    Raises:
        RuntimeError: an engine misses the recall, so that its time means nothing.
    """
    for row in rows.values():
        for k, recall in row.recall.items():
            if recall < ENOUGH:
                raise RuntimeError(f"{collection}: {row.contestant.name} has recall@{k} {recall:.4f}, below {ENOUGH}")
    values = {}
    peers = [(name, rows[name]) for name in (SINDI_EXACT, SEISMIC) if name in rows]
    for name, peer in peers:
        for call, mine in (("public", rows[PUBLIC]), ("arrays", rows[ARRAYS])):
            for k in KS:
                values[f"{call}_{name.split()[0]}_{collection}_k{k}"] = round(
                    median_ratio(mine.times[k], peer.times[k]), 3
                )
    values[f"bytes_per_doc_{collection}"] = round(rows[PUBLIC].sizes["matching"] / rows[PUBLIC].documents, 1)
    return values


def median_ratio(mine: Sequence[float], theirs: Sequence[float], passes: int = PASSES) -> float:
    """Return the median over passes of the ratio of medians; the times of a pass follow each other."""
    ours_by_pass, theirs_by_pass = (np.median(np.reshape(times, (passes, -1)), axis=1) for times in (mine, theirs))
    return float(np.median(ours_by_pass / theirs_by_pass))


def behind(measured: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    """Return a sentence for each value that is too far above its record, or that was not measured."""
    found = []
    for name, before in recorded.items():
        now = measured.get(name)
        if now is None:
            found.append(f"{name}: recorded as {before}, but not measured; run with --record if it was removed")
        elif now > before * ALLOWED:
            found.append(f"{name}: {now}, more than {ALLOWED - 1:.0%} above the recorded {before}")
    return found


def print_values(measured: Mapping[str, float], recorded: Mapping[str, float]) -> None:
    """Print measured and recorded values."""
    table = Table(title="ours / theirs, p50; lower is better", title_justify="left")
    for name in ("value", "measured", "recorded", "change"):
        table.add_column(name, justify="left" if name == "value" else "right")
    for name, value in measured.items():
        before = recorded.get(name)
        change = "" if before is None else f"{value / before - 1:+.1%}"
        table.add_row(name, f"{value:g}", "" if before is None else f"{before:g}", change)
    Console(width=120).print(table)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
