"""How far is `lsr-prod table estimate` from real runs on collections that it was not fitted to?

    python -m benchmarks.encode.estimate SHARED_DATA [--fit debian_packages] [--targets msmarco_5k scifact tldr_en]
        [--documents 16000] [--rounds 3] [--actors 1] [--quiet]

The model is splade-tiny. Each round encodes a quarter of the collection of ``--fit``, all of it, and every target, one
after the other on a local Ray, so that a slow minute of the machine hits all of them; medians over the rounds count.
The speed is fitted to the two sizes of the first collection. A target is predicted from its bytes and number of
documents alone (``_by_bytes``), and from the tokens of a sample of 500 of its documents (``_by_sample``).

Prints measured and predicted wall seconds and CPU seconds, their relative errors, and ``RESULT {json}``. CPU seconds
are those of the job and its workers, from /proc, without the daemons of Ray, which need more the longer other work
delays the job. ``_by_one_run`` is the error in wall seconds of a fit to the large run alone, and ``table_error`` that
of the bytes of the table. Exit code 1 if an error by sample is above 20 %: of CPU seconds, and with ``--quiet``
(nothing else runs on the machine) of wall seconds too. Linux only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.encode.models import make_tiny
from lsr_prod.config import EncodeSettings, ExportSettings, SourceSettings
from lsr_prod.errors import ConfigError
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_columns
from lsr_prod.model.export import export_bundle
from lsr_prod_contrib.estimates.dry_run import fit_speed
from lsr_prod_contrib.estimates.measured import EncodeRun
from lsr_prod_contrib.estimates.sample import sample_tokens

LIMIT = 0.2
SAMPLE = 500  # documents
_INTERVAL_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")
_JOB = Path(__file__).resolve().parents[2] / "jobs" / "encode.py"


def write_part(source: Path, target: Path, documents: int) -> int:
    """Write documents at even distances of a collection; returns their number."""
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
    step = max(len(lines) / documents, 1.0)
    kept = [lines[int(i * step)] for i in range(min(documents, len(lines)))]
    target.parent.mkdir(parents=True)
    target.write_text("".join(kept), encoding="utf-8")
    return len(kept)


def cpu_of(driver: int, seen: dict[tuple[int, int], float]) -> None:
    """Update the CPU seconds of a job and its workers: (pid, start time) -> seconds."""
    parents: dict[int, int] = {}
    used: dict[int, tuple[tuple[int, int], float]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            title = (folder / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(folder.name)
        parents[pid] = int(fields[1])
        if pid == driver or title.startswith(b"ray::"):
            used[pid] = (pid, int(fields[19])), (int(fields[11]) + int(fields[12])) / _TICKS
    for pid, (key, seconds) in used.items():
        if pid == driver or driver in _ancestors(pid, parents) or key in seen:
            seen[key] = seconds


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid := parents.get(pid, 0):
        yield pid


def run_job(bundle: Path, corpus: Path, actors: int) -> tuple[EncodeRun, float]:
    """Encode a corpus into a new table; returns the run and its CPU seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {
            "source.paths": json.dumps([str(corpus)]),
            "encode.bundle": str(bundle.absolute()),
            "encode.table": str(folder / "table"),
            "encode.actors": str(actors),
        }
        command = [
            sys.executable,
            str(_JOB),
            *(part for key, value in settings.items() for part in (f"--{key}", value)),
        ]
        seen: dict[tuple[int, int], float] = {}
        with (folder / "out").open("w") as out, (folder / "log").open("w") as log:
            job = subprocess.Popen(command, stdout=out, stderr=log)
            while job.poll() is None:
                cpu_of(job.pid, seen)
                time.sleep(_INTERVAL_S)
        if job.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{(folder / 'log').read_text()[-2000:]}")
        last = next(line for line in (folder / "out").read_text().splitlines() if line.startswith("RESULT "))
        return EncodeRun.model_validate_json(last.removeprefix("RESULT ")), sum(seen.values())


def median_run(runs: Sequence[tuple[EncodeRun, float]]) -> tuple[EncodeRun, EncodeRun]:
    """Return a run with median wall seconds, and one with the median CPU seconds in their place."""
    wall = statistics.median(run.seconds for run, _ in runs)
    window = statistics.median(run.encode_seconds for run, _ in runs)
    cpu = statistics.median(seconds for _, seconds in runs)
    first = runs[0][0]
    return (
        first.model_copy(update={"seconds": wall, "encode_seconds": window}),
        first.model_copy(update={"seconds": cpu, "encode_seconds": min(cpu, window), "actors": 1, "busy_share": 1.0}),
    )


def compare(
    fitted: Sequence[tuple[EncodeRun, EncodeRun]],
    targets: dict[str, tuple[EncodeRun, EncodeRun]],
    tokens: dict[str, float],
) -> dict[str, Any]:
    """Predict every target in wall and CPU seconds; returns errors and figures by name."""
    values: dict[str, Any] = {}
    largest = fitted[-1][0]
    for place, unit in enumerate(("wall", "cpu")):
        try:
            speed = fit_speed([pair[place] for pair in fitted])
        except ConfigError as error:  # the machine was not idle
            sys.stderr.write(f"{unit} seconds cannot be fitted: {error}\n")
            continue
        values[f"fixed_{unit}_s"] = round(speed.fixed_s, 2)
        for name, pair in targets.items():
            run = pair[place]
            by_bytes = run.source_bytes * largest.tokens / (largest.bytes_per_document * largest.encoded)
            for how, count in (("sample", tokens[name] * run.documents), ("bytes", by_bytes), ("tokens", run.tokens)):
                predicted = speed.seconds(count, run.actors)
                values[f"{name}_{unit}_by_{how}"] = round(predicted, 2)
                values[f"{name}_{unit}_error_by_{how}"] = round(predicted / run.seconds - 1, 3)
            values[f"{name}_{unit}_s"] = round(run.seconds, 2)
    alone = fit_speed([largest])
    for name, (run, _) in targets.items():
        predicted = alone.seconds(tokens[name] * run.documents, run.actors)
        values[f"{name}_wall_error_by_one_run"] = round(predicted / run.seconds - 1, 3)
        table = largest.table_bytes / largest.documents * run.documents
        values[f"{name}_table_error"] = round(table / run.table_bytes - 1, 3)
    return values


def main(argv: Sequence[str]) -> int:
    """Measure, predict, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the collections")
    parser.add_argument("--fit", default="debian_packages", help="collection that the speed is fitted to")
    parser.add_argument("--targets", nargs="+", default=["msmarco_5k", "scifact", "tldr_en"])
    parser.add_argument("--documents", type=int, default=16_000, help="documents of each collection, at most")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each size")
    parser.add_argument("--actors", type=int, default=1, help="encoder actors")
    parser.add_argument("--quiet", action="store_true", help="the machine is idle: wall seconds decide too")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bundle = folder / "bundle"
        export_bundle(ExportSettings(model=str(make_tiny(folder / "model")), output=str(bundle)))
        sizes = {"fit_quarter": (given.fit, given.documents // 4), "fit_all": (given.fit, given.documents)}
        sizes |= {name: (name, given.documents) for name in given.targets}
        runs: dict[str, list[tuple[EncodeRun, float]]] = {name: [] for name in sizes}
        for name, (collection, documents) in sizes.items():
            write_part(given.data / collection / "corpus.jsonl", folder / name / "corpus.jsonl", documents)
        for _ in range(given.rounds):
            for name, measured in runs.items():
                measured.append(run_job(bundle, folder / name / "corpus.jsonl", given.actors))
                run, cpu = measured[-1]
                sys.stderr.write(f"{name}: {run.tokens:,} tokens, {run.seconds:.1f} s, {cpu:.1f} CPU s\n")
        encode = EncodeSettings(bundle=str(bundle), table="unused")
        tokens = {}
        for name in given.targets:
            source = SourceSettings(paths=[str(folder / name / "corpus.jsonl")])
            tokens[name] = sample_tokens(source, encode, {}, documents=SAMPLE).tokens_per_document
        medians = {name: median_run(measured) for name, measured in runs.items()}
    fitted = [medians.pop("fit_quarter"), medians.pop("fit_all")]
    values = {"rounds": given.rounds, "documents": given.documents} | compare(fitted, medians, tokens)
    rows = [
        [
            name,
            unit,
            *(values[f"{name}_{unit}_{what}"] for what in ("s", "by_sample", "error_by_sample", "error_by_bytes")),
        ]
        for name in given.targets
        for unit in ("wall", "cpu")
        if f"fixed_{unit}_s" in values
    ]
    headings = ("collection", "seconds", "measured", "predicted by sample", "error by sample", "error by bytes")
    print_columns(f"fitted to {given.fit}", headings, rows)
    print_result(values)
    decisive = ("wall", "cpu") if given.quiet else ("cpu",)
    errors = [values.get(f"{name}_{unit}_error_by_sample") for name in given.targets for unit in decisive]
    return 0 if all(error is not None and abs(error) <= LIMIT for error in errors) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
