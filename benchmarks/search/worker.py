"""Worker process of the search benchmarks: run one engine, time each query, and take commands over a pipe.

    python -m benchmarks.search.worker '{spec}'

Each line of stdin is one JSON command; the worker answers each with one JSON line. An engine is a class with::

    version: str                                   of the engine and its settings; part of the name of its stored index
    build(collection, folder, options) -> float    static; seconds from the engine's own types to an index on disk
    __init__(collection, folder, options)          opens it
    sizes() -> {part: bytes}                       on disk
    prepare(terms, weights, k) -> asked            into the engine's own types; not timed
    query(asked, k) -> answer                      timed; called by several threads
    decode(answer) -> (ids, scores)                out of the engine's own types; not timed
    batch(asked, k, threads) -> int                optional: many queries in one call; their number
    touched(terms, weights) -> (postings, bytes)   optional: what a query reads

This file imports only numpy, because the environments of the peers run it too.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.data import KS, Collection, Queries, recall


class Worker:
    """Engine, queries and recorded answers of one process."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.kind: Any = getattr(importlib.import_module(spec["module"]), spec["engine"])
        self.collection = Collection(Path(spec["collection"]))
        self.options: dict[str, Any] = dict(spec["options"])
        self.query_terms: int = spec["query_terms"]
        self.queries: Queries = self.collection.queries(self.query_terms)
        self.engine: Any = None
        self.answers: dict[int, dict[int, Any]] = {}
        self.prepared: dict[int, list[Any]] = {}

    def version(self) -> dict[str, Any]:
        """Return the engine version, which is part of the identity of a stored index."""
        return {"version": self.kind.version}

    def build(self, folder: str) -> dict[str, Any]:
        """Build the index and return the seconds and the peak memory in bytes."""
        seconds = self.kind.build(self.collection, Path(folder), self.options)
        return {"seconds": seconds, "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}

    def open(self, folders: Sequence[str]) -> dict[str, Any]:
        """Open the index, run one query to import and compile code, close it, then open it again and time that.

        Several folders are the shards of one index, for engines that support shards.
        """
        where = Path(folders[0]) if len(folders) == 1 else [Path(folder) for folder in folders]
        self.engine = self.kind(self.collection, where, self.options)
        self.engine.query(self.engine.prepare(*self.queries[0], KS[0]), KS[0])
        self.engine = None
        gc.collect()
        before = memory()
        start = time.perf_counter()
        self.engine = self.kind(self.collection, where, self.options)
        ms = (time.perf_counter() - start) * 1e3
        return {"ms": ms, "sizes": self.engine.sizes(), "before": before}

    def rss(self) -> dict[str, Any]:
        """Return the resident bytes of this process: in total, and without file mappings."""
        return memory()

    def prepare(self, k: int) -> dict[str, Any]:
        """Convert all queries to the engine's types; some engines also run them here, so call this before timing."""
        self.prepared[k] = [self.engine.prepare(*self.queries[i], k) for i in range(len(self.queries))]
        return {}

    def ask(self, numbers: Sequence[int], k: int, keep: bool, threads: int = 1) -> dict[str, Any]:
        """Run the queries one by one, or in each of some threads, and return nanoseconds per query."""
        engine, clock, prepared = self.engine, time.perf_counter_ns, self.prepared[k]
        kept = self.answers.setdefault(k, {})

        def run(some: Sequence[int]) -> list[int]:
            times = []
            for i in some:
                query, start = prepared[i], clock()
                answer = engine.query(query, k)
                times.append(clock() - start)
                if keep:
                    kept[i] = answer
            return times

        gc.disable()
        if threads == 1:
            times = run(numbers)
        else:
            with ThreadPoolExecutor(threads) as pool:
                times = [one for part in pool.map(run, (numbers[i::threads] for i in range(threads))) for one in part]
        gc.enable()
        return {"ns": times}

    def recall(self, k: int, at: int) -> dict[str, Any]:
        """Return the mean recall@``at`` of the recorded answers to queries for ``k`` hits, and forget them."""
        truth = self.collection.truth(self.query_terms, KS)
        found = []
        for i, answer in self.answers.pop(k).items():
            ids = np.asarray(self.engine.decode(answer)[0], np.int64)
            floor, matching = truth[i, KS.index(at)], int(truth[i, -2])
            found.append(recall(self.collection, ids, self.queries[i], k=at, floor=floor, matching=matching))
        return {"recall": float(np.mean(found))}

    def throughput(self, threads: int, seconds: float, k: int) -> dict[str, Any]:
        """Return queries per second of ``threads`` threads that share the index."""
        engine, asked = self.engine, self.prepared[k]
        counts, ready = [0] * threads, threading.Barrier(threads + 1)

        def work(thread: int) -> None:
            at = thread * len(asked) // threads  # threads start at different queries
            ready.wait()
            deadline, count = time.perf_counter() + seconds, 0
            while time.perf_counter() < deadline:
                engine.query(asked[at], k)
                at = at + 1 if at + 1 < len(asked) else 0
                count += 1
            counts[thread] = count

        running = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
        for thread in running:
            thread.start()
        ready.wait()
        start = time.perf_counter()
        for thread in running:
            thread.join()
        return {"qps": sum(counts) / (time.perf_counter() - start)}

    def batches(self, threads: int, seconds: float, k: int) -> dict[str, Any]:
        """Return queries per second of calls that take many queries, or None if the engine has no such call."""
        batch = getattr(self.engine, "batch", None)
        if batch is None:
            return {"qps": None}
        asked, start, count = self.prepared[k], time.perf_counter(), 0
        while time.perf_counter() < start + seconds:
            count += batch(asked, k, threads)
        return {"qps": count / (time.perf_counter() - start)}

    def touched(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return the postings and bytes that each query reads, or None if the engine does not report them."""
        if not hasattr(self.engine, "touched"):
            return {"postings": None, "bytes": None}
        rows = [self.engine.touched(*self.queries[i]) for i in numbers]
        return {"postings": [int(row[0]) for row in rows], "bytes": [int(row[1]) for row in rows]}

    def set(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Change the options that the engine reads in ``prepare``."""
        self.options.update(options)
        self.engine.options = self.options
        return {}


@contextlib.contextmanager
def quiet(descriptor: int) -> Iterator[None]:
    """Discard output that native code writes to a file descriptor."""
    kept = os.dup(descriptor)
    with Path(os.devnull).open("w") as hole:
        os.dup2(hole.fileno(), descriptor)
        try:
            yield
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)


def memory() -> dict[str, int]:
    """Return the resident bytes, in total and of anonymous memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {
        line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss") or "VmRSS" in line
    }
    return {"rss": found["VmRSS"], "anonymous": found["RssAnon"]}


def main(spec: str) -> int:
    """Execute commands until stdin ends."""
    # Engines may print to stdout, so answers go through a private copy of it and stdout goes to stderr.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(json.loads(spec))
    print(json.dumps({"ready": True}), file=pipe, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps(getattr(worker, command.pop("do"))(**command)), file=pipe, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
