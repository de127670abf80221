"""Nights of the job reindex over an object store, with kills, doubled starts, bad deliveries and new models.

``python -m tests.nights [--nights 30] [--documents 200] [--seed 1]``. After each good night the index is compared with
a full rebuild. It prints one line per night and ``RESULT {json}``; the exit code is 1 if anything was lost, stale or
doubled.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.nights.world import run_nights


def main() -> int:
    """Run the nights and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("LSR_NIGHTS_SEED", "1")))
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nights-", ignore_cleanup_errors=True) as folder:
        tally = run_nights(Path(folder), given.nights, given.documents, given.seed)
    for problem in tally.problems:
        print(problem)
    counts = {name: getattr(tally, name) for name in ("nights", "lost", "stale", "doubled", "refused")}
    figures = {**counts, "seed": given.seed, "publications_seen": len(tally.seen), **tally.events}
    print(f"RESULT {json.dumps({**figures, 'seconds': round(time.monotonic() - began)})}")
    return int(bool(tally.problems) or tally.nights != given.nights)


if __name__ == "__main__":
    sys.exit(main())
