"""Nights of the job reindex over an object store, with kills, doubled starts, bad deliveries and new models.

``python -m tests.nights [--nights 30] [--documents 200] [--seed 1] [--logs FOLDER] [--processes]``. The nodes are
machines in namespaces of their own, which needs root; processes of this computer with ``--processes``. After each good
night the index is compared with a full rebuild. It prints one line per night and ``RESULT {json}``. Exit codes: 0 all
is well, 1 something was lost, stale or doubled, or failed without a cause, 3 this computer cannot make machines.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.namespaces import missing
from tests.nights.schedule import make_schedule
from tests.nights.world import run_nights


def main() -> int:
    """Run the nights and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("LSR_NIGHTS_SEED", "1")))
    parser.add_argument("--logs", type=Path, help="folder that is kept; default: a new one, which is deleted")
    parser.add_argument("--processes", action="store_true", help="nodes are processes, not machines")
    given = parser.parse_args()
    if not given.processes and (reason := missing()):
        print(f"skipped: {reason}; --processes needs no machines")
        return 3
    schedule = make_schedule(given.nights, given.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nights-", ignore_cleanup_errors=True) as scratch:
        folder = given.logs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        tally = run_nights(folder, schedule, given.documents, given.seed, machines=not given.processes)
    for problem in tally.problems:
        print(problem)
    counts = {name: getattr(tally, name) for name in ("nights", "lost", "stale", "doubled", "refused", "failed")}
    figures = {**counts, "seed": given.seed, "publications_seen": len(tally.seen), **tally.events}
    print(f"RESULT {json.dumps({**figures, 'seconds': round(time.monotonic() - began)})}")
    return int(bool(tally.problems) or tally.nights != given.nights)


if __name__ == "__main__":
    sys.exit(main())
