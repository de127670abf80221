"""Do threads change an answer? One thread answers every query twice, then four answer them for ten seconds.

    python -m benchmarks.search.threads .quickstart/index .quickstart/collection/queries.jsonl

The first pass verifies pages and fills caches, and is not timed. Prints queries a second on one and on four threads,
from text (one ONNX Runtime thread per query if a model encodes it), their ratio, and the number of answers that differ,
then ``RESULT {json}``. Exit code 1 if any differs.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from lsr_prod import Searcher, SearchResult
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table

THREADS, SECONDS = 4, 10.0
THRESHOLDS = (0.0, 0.2, 0.4)


def answer(searcher: Searcher, text: str, number: int) -> SearchResult:
    """Answer with the threshold that the query's number picks."""
    return searcher.search(text, k=10, overlap_threshold=THRESHOLDS[number % len(THRESHOLDS)])


def main(argv: Sequence[str]) -> int:
    """Compare, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", help="folder of a published index")
    parser.add_argument("queries", type=Path, help="JSON lines with text")
    asked = parser.parse_args(argv)
    searcher = Searcher.open(asked.index)
    with asked.queries.open(encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    for i, text in enumerate(texts):
        answer(searcher, text, i)
    start = time.perf_counter()
    expected = [answer(searcher, text, i) for i, text in enumerate(texts)]
    alone = len(texts) / (time.perf_counter() - start)

    counts, wrong = [0] * THREADS, [0] * THREADS
    deadline = time.perf_counter() + SECONDS

    def work(thread: int) -> None:
        i = thread * len(texts) // THREADS  # every thread begins elsewhere
        while time.perf_counter() < deadline:
            got, want = answer(searcher, texts[i], i), expected[i]
            wrong[thread] += (got.hits, got.matched, got.required) != (want.hits, want.matched, want.required)
            counts[thread] += 1
            i = (i + 1) % len(texts)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = sum(counts) / SECONDS
    values = {
        "queries": sum(counts),
        "different_answers": sum(wrong),
        "qps_1_thread": round(alone, 1),
        f"qps_{THREADS}_threads": round(together, 1),
        "qps_ratio": round(together / alone, 2),
    }
    print_table("search from threads", values)
    print_result(values)
    return 1 if sum(wrong) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
