"""What does planning cost? A million files that nobody wrote are planned, saved, loaded again and walked through.

    python -m benchmarks.encode.plan_scale [entries]

The plan of an increment follows, with 1 % of the files new and 1 % gone. Prints seconds of each step and the peak of
resident memory of this process, everything imported included, then ``RESULT {json}``.
"""

import hashlib
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from lsr_prod.config import EncodeSettings, SourceSettings
from lsr_prod.corpus.source_file import SourceFile
from lsr_prod.encoding.plans.increment import newest_plan, plan_increment
from lsr_prod.encoding.plans.plan import Plan, make_plan
from lsr_prod.encoding.plans.saved import load_plan, save_plan
from lsr_prod.jobs.run import print_result, print_table
from lsr_prod.storage import Store

SOURCE = SourceSettings(paths=["s3://corpus/"])
ENCODE = EncodeSettings(bundle="bundle", table="table")
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


def main(count: int) -> int:
    """Plan, print, and return the exit code."""
    seconds: dict[str, float] = {}
    started = last = time.perf_counter()

    def lap(step: str) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds[step], last = round(now - last, 1), now

    with tempfile.TemporaryDirectory() as folder:
        table = Store(folder)
        plan = make_plan(entries(count), SOURCE, ENCODE, bundle_digest="b", options={})
        lap("plan_s")
        save_plan(plan, table)
        lap("save_s")
        found = walk(plan)
        lap("waves_s")
        first_total, cpu = time.perf_counter() - started, time.process_time()
        peak_first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        head = load_plan(table, newest_plan(table, plan.digest))
        del plan
        lap("load_s")
        percent = max(count // 100, 1)
        today = (replace(file, uri="s3://moved/documents") for file in islice(entries(count + percent), percent, None))
        after = plan_increment(head, today, SOURCE, ENCODE, options={}, done=head.waves)
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
    print_table("planning", values)
    print_result(values)
    return 0 if (found, added, removed) == (count, percent, percent) else 1


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
