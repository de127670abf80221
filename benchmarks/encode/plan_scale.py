"""What does the driver cost? Planning for a million files, and whole runs whose encoders cost nothing.

    python -m benchmarks.encode.plan_scale [--entries 1000000] [--rows 1000000 10000000 100000000 1000000000]

The first part plans, saves, loads again and walks through files that nobody wrote; the plan of an increment follows,
with 1 % of the files new and 1 % gone.

The second part runs the steps of the driver for rows of 1 KB and 1,000 encoders: the real planner, the committer with
a Delta log, the list of files by bucket of each wave, and the table digest. Encoders are simulated by receipts of parts
that nobody wrote; workers verify parts, so the driver makes no request for them. ``requests`` are those to the table's
store, without those of delta-rs for its log. What Ray costs the driver is measured apart, with real tasks that return
one object per block and real actor calls that take them: ``ray_us_per_object``. The wall time of a run is that of
1,000 encoders with ``--rate`` documents per second each. Two nights follow, one without a change and one with 1 % of
the files changed (``simulated_nights``).

Prints seconds of each step and the peak of resident memory of this process, everything imported included, then
``RESULT {json}``. Exit code 1 if a figure of the driver misses its goal: 2 GB, 5 % of the wall time, 60 s to resume.
"""

import argparse
import hashlib
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from benchmarks.encode.simulated_run import ACTORS, ray_us_per_object, simulate
from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.encoding.plans.encode_plan import Plan, PlanInputs, make_plan
from lsr_prod.encoding.plans.increment import plan_increment
from lsr_prod.encoding.plans.successors import load_plan, plan_chain, save_plan
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.storage import Store

SOURCE = SourceSettings(paths=["s3://corpus/"])
ENCODE = EncodeSettings(bundle="bundle", table="table")
_MANY = 10**9
MEGABYTES = 24  # of a file: ten are a wave, and none needs its footer


def entries(count: int, first: int = 0) -> Iterator[SourceFile]:
    """Files as an object store lists them: long names, one ETag each."""
    for i in range(first, first + count):
        tag = hashlib.md5(b"%d" % i, usedforsecurity=False).hexdigest()
        name = f"year={2000 + i % 25}/part-{i:09d}-{tag[:16]}.jsonl.gz"
        yield SourceFile("s3://corpus/documents", name, "jsonl.gz", MEGABYTES * 1_000_000, f'"{tag}"')


def walk(plan: Plan) -> int:
    """Slices of all waves, each wave as the driver asks for it."""
    return sum(len(plan.wave(wave)) for wave in range(plan.waves))


def plan_files(count: int) -> dict[str, float]:
    """Plan files, and return the figures."""
    seconds: dict[str, float] = {}
    started = last = time.perf_counter()

    def lap(step: str) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds[step], last = round(now - last, 1), now

    with tempfile.TemporaryDirectory() as folder:
        table = Store(folder)
        plan = make_plan(entries(count), PlanInputs(SOURCE, ENCODE, "b", {}))
        lap("plan_s")
        save_plan(plan, table)
        lap("save_s")
        found = walk(plan)
        lap("waves_s")
        first_total, cpu = time.perf_counter() - started, time.process_time()
        peak_first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        waves = plan.waves
        head = load_plan(table, plan_chain(table, plan.digest, lambda _: waves)[-1])
        del plan
        lap("load_s")
        percent = max(count // 100, 1)
        today = (replace(file, uri="s3://moved/documents") for file in islice(entries(count + percent), percent, None))
        after = plan_increment(head, today, PlanInputs(SOURCE, ENCODE, "b", {}), done=head.waves)
        save_plan(after, table)
        lap("increment_s")
        stored = sum(table.size(name) or 0 for name in table.names())
        added, removed = after.slice_table.num_rows, len(after.removed)
    values = {
        "entries": count,
        "waves": head.waves,
        "seconds": round(first_total, 1),
        "cpu_s": round(cpu, 1),
        "peak_rss_mb": round(peak_first),
        **seconds,
        "peak_rss_mb_with_increment": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "stored_mb_two_plans": round(stored / 1e6),
        "increment_added": added,
        "increment_removed": removed,
    }
    assert (found, added, removed) == (count, percent, percent)
    return values


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000, help="files of the first part")
    parser.add_argument("--rows", type=int, nargs="*", default=[10**6, 10**7, 10**8, 10**9])
    parser.add_argument("--rate", type=float, default=100.0, help="documents per second of an encoder")
    arguments = parser.parse_args()
    values: dict[str, float] = {}
    right = True
    if arguments.rows:
        values["ray_us_per_object"] = round(ray_us_per_object(), 1)
    for rows in arguments.rows:
        figures = simulate(rows, values["ray_us_per_object"], arguments.rate)
        print_table(f"{rows:,} rows, {ACTORS:,} encoders", figures)
        values |= {f"{name}_{rows:.0e}".replace("+0", ""): value for name, value in figures.items()}
        right &= figures["peak_rss_mb"] < 2000 and figures["resume_s"] < 60
        # Fewer rows are encoded before 1,000 encoders have started.
        right &= rows < _MANY or figures["driver_share"] < 0.05
    if arguments.entries:
        figures = plan_files(arguments.entries)
        print_table("planning", figures)
        values |= figures
    print_result(values)
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
