"""Search an index for half an hour while versions are published: ``python -m tests.search.soak [--seconds 1800]``.

One process publishes: changed, new and deleted documents, takedowns and restorations, merges of delta shards, full
rebuilds, garbage collection. The other one searches from four threads and follows: by vector, with a threshold, with a
filter, hybrid. Prints latencies and the memory of the process, and fails if its memory, descriptors or maps grow after
the first two minutes, or if a sampled answer differs from brute force over the documents of its version. Of hybrid
searches the score of every hit is compared with its explanation.
"""

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from lsr_prod.indexing import build_index, delete_documents, restore_documents
from lsr_prod.indexing.garbage import collect_garbage
from lsr_prod.search import Hybrid, Searcher
from lsr_prod.search import field as attribute
from lsr_prod.search.search_result import SearchResult
from lsr_prod.storage.publications import current_publication
from tests.indexing.corpus import Doc
from tests.indexing.increments import VOCABULARY, Increment, change_table, deployment, make_world
from tests.search.oracle import brute_force

DOCUMENTS = 2000
THREADS = 4
WARM_UP_S = 120
SAMPLE_EVERY = 200  # queries of a thread
STEPS = 200  # of the histogram of times, per factor of e
WORDS = [f"word{i}" for i in range(200)]
SETTINGS: dict[str, Any] = {"bm25": True, "attributes": {"title": "int64"}, "max_delta": 0.4, "max_delta_shards": 4}


# ---- the process that publishes ----


def some_doc(dice: random.Random) -> Doc:
    """Return a document with terms, words and a year."""
    terms = dice.sample(range(VOCABULARY), dice.randint(4, 12))
    impacts = sorted((dice.randint(1, 255) for _ in terms), reverse=True)
    text = " ".join(dice.choices(WORDS, k=12))
    return Doc(dict(zip(terms, impacts, strict=True)), text, {"title": str(dice.randint(1990, 2025))})


def publish_for(root: Path, seconds: float, every_s: float) -> None:
    """Publish a version every ``every_s`` seconds, and write the documents of each to ``expected``."""
    dice, until = random.Random(5), time.monotonic() + seconds
    corpus = {f"d{i:05d}": some_doc(dice) for i in range(DOCUMENTS)}
    make_world(root, corpus)
    down: set[str] = set()
    for number in range(1_000_000):
        began = time.monotonic()
        if number:
            gone = dice.sample(sorted(corpus), 20)
            new = {f"d{DOCUMENTS + 20 * number + i:05d}": some_doc(dice) for i in range(20)}
            changed = {doc_id: some_doc(dice) for doc_id in dice.sample(sorted(set(corpus) - set(gone)), 20)}
            increment = Increment({**new, **changed}, gone)
            change_table(root, increment)
            corpus = increment.after(corpus)
        build_index(deployment(root, **SETTINGS))
        expect(root, corpus, down)
        if number % 3 == 1:
            hidden = dice.sample(sorted(set(corpus) - down), 10)
            delete_documents(root / "index", hidden)
            down |= set(hidden)
            expect(root, corpus, down)
        if number % 6 == 5:
            back = dice.sample(sorted(down), min(15, len(down)))
            restore_documents(root / "index", back)
            down -= set(back)
            expect(root, corpus, down)
        collect_garbage(root / "index", keep=3, age_s=60)
        if time.monotonic() > until:
            return
        time.sleep(max(0.0, every_s - (time.monotonic() - began)))


def expect(root: Path, corpus: dict[str, Doc], down: set[str]) -> None:
    """Write the documents of the current version."""
    (root / "expected").mkdir(exist_ok=True)
    alive = {i: [dict(d.terms), d.stored["title"]] for i, d in corpus.items() if i not in down}
    (root / "expected" / f"{current_publication(root / 'index').version}.json").write_text(json.dumps(alive))


# ---- the process that searches ----


@dataclass(slots=True)
class Load:
    """What the threads found; samples go to a file and times to a histogram, so that they are no growth."""

    searcher: Searcher
    until: float
    pause_s: float
    samples: IO[str]
    times: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(20 * STEPS, np.int64))
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    versions: set[str] = field(default_factory=set)

    def run(self, seed: int) -> None:
        """Search until the end."""
        dice, number = random.Random(seed), 0
        while time.monotonic() < self.until:
            number += 1
            terms = dice.sample(range(VOCABULARY), dice.randint(3, 8))
            vector: dict[int, float] = {term: dice.uniform(0.1, 3) for term in terms}
            try:
                self._search(dice, number, vector)
            except Exception as error:  # noqa: BLE001 - any failure is a finding
                self.wrong.append(repr(error))
            time.sleep(self.pause_s)

    def _search(self, dice: random.Random, number: int, vector: dict[int, float]) -> None:
        kind, k = number % 4, dice.choice([1, 10, 100])
        required = 2 if kind == 1 else 1
        since = dice.randint(1990, 2025) if kind == 2 else None
        text = " ".join(dice.sample(WORDS, 3)) if kind == 3 else None
        options: dict[str, Any] = {"min_terms": required}
        if since is not None:
            options["filter"] = attribute("title") >= since
        if text is not None:
            options["hybrid"] = Hybrid()
        began = time.perf_counter()
        result = self.searcher.search_vector(vector, k, text=text, **options)
        microseconds = 1e6 * (time.perf_counter() - began)
        self.times[min(len(self.times) - 1, int(STEPS * math.log(max(1.0, microseconds))))] += 1
        self.versions.add(result.version)
        if number % SAMPLE_EVERY == kind:
            hits = [(hit.doc_id, hit.score, hit.overlap) for hit in result.hits]
            if text is None:
                line = json.dumps([result.version, vector, required, since, k, hits]) + "\n"
                with self.lock:
                    self.samples.write(line)
            else:
                self._compare_explained(vector, text, result)

    def _compare_explained(self, vector: dict[int, float], text: str, result: SearchResult) -> None:
        if result.hits != tuple(sorted(result.hits, key=lambda hit: (-hit.score, hit.doc_id))):
            self.wrong.append(f"hybrid hits of {vector} are not in order")
        for hit in result.hits[:3]:
            if self.searcher.publication.version != result.version:
                return
            told = self.searcher.explain(vector, hit.doc_id, hybrid=Hybrid(), text=text)
            if self.searcher.publication.version == result.version and told.score != hit.score:
                self.wrong.append(f"hybrid score of {hit.doc_id} is {hit.score}, explained as {told.score}")


def percentile(times: npt.NDArray[np.int64], share: float) -> float:
    """Return a percentile in milliseconds, to half a percent."""
    step = int(np.searchsorted(np.cumsum(times), share * times.sum()))
    return round(math.exp((step + 0.5) / STEPS) / 1e3, 2)


def count_wrong(root: Path) -> tuple[int, int]:
    """Return how many samples were compared with brute force, and how many differ."""
    compared = wrong = 0
    by_version: dict[str, list[Any]] = {}
    for line in (root / "samples.jsonl").read_text().splitlines():
        version, *sample = json.loads(line)
        by_version.setdefault(version, []).append(sample)
    for version, some in by_version.items():
        stored = json.loads((root / "expected" / f"{version}.json").read_text())
        corpus = {i: Doc({int(t): x for t, x in terms.items()}) for i, (terms, _) in stored.items()}
        years = {doc_id: int(year) for doc_id, (_, year) in stored.items()}
        for vector, required, since, k, hits in some:
            allowed = {doc_id for doc_id, year in years.items() if since is None or year >= since}
            weights = {int(term): weight for term, weight in vector.items()}
            found = brute_force(corpus, weights, required, allowed=allowed.__contains__)
            compared += 1
            wrong += found[:k] != [tuple(hit) for hit in hits]
    return compared, wrong


def measure() -> dict[str, int]:
    """Return the memory (MB), descriptors, maps and threads of this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    memory = {name: int(status[key].split()[0]) // 1024 for name, key in (("rss", "VmRSS"), ("anonymous", "RssAnon"))}
    maps = Path("/proc/self/maps").read_text().count("\n")
    return {
        **memory,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "maps": maps,
        "threads": threading.active_count(),
    }


def grown(measured: list[dict[str, int]]) -> list[str]:
    """Return what grew: its maximum in the last quarter exceeds that of the first one by more than noise."""
    quarter = max(1, len(measured) // 4)
    found = []
    for name, noise in (("rss", 8), ("anonymous", 8), ("descriptors", 4), ("maps", 40), ("threads", 2)):
        before, after = (max(one[name] for one in some) for some in (measured[:quarter], measured[-quarter:]))
        if after > 1.05 * before + noise:
            found.append(f"{name} {before} -> {after}")
    return found


def main() -> int:
    """Run; returns the exit code."""
    options = argparse.ArgumentParser(prog="tests.search.soak", description=__doc__)
    options.add_argument("--seconds", type=float, default=1800)
    options.add_argument("--every", type=float, default=10, help="seconds between two publications")
    options.add_argument("--pause-ms", type=float, default=2, help="of a thread after each query")
    options.add_argument("--publish", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.publish:
        publish_for(given.publish, given.seconds, given.every)
        return 0
    with tempfile.TemporaryDirectory(prefix="lsr-soak-") as folder:
        return soak(Path(folder), given.seconds, given.every, given.pause_ms / 1e3)


def soak(root: Path, seconds: float, every_s: float, pause_s: float) -> int:
    """Search while another process publishes; prints the result and returns the exit code."""
    command = [sys.executable, "-m", "tests.search.soak", "--publish", str(root)]
    publisher = subprocess.Popen([*command, "--seconds", str(seconds), "--every", str(every_s)])
    while publisher.poll() is None and not any((root / "expected").glob("*.json")):
        time.sleep(0.1)
    with Searcher.open(root / "index") as searcher, (root / "samples.jsonl").open("w") as samples:
        searcher.follow(1.0)
        began = time.monotonic()
        load = Load(searcher, began + seconds, pause_s, samples)
        threads = [threading.Thread(target=load.run, args=(seed,)) for seed in range(THREADS)]
        for thread in threads:
            thread.start()
        measured: list[dict[str, int]] = []
        while time.monotonic() < load.until:
            time.sleep(min(5.0, seconds / 40))
            if time.monotonic() - began > min(WARM_UP_S, seconds / 4):
                measured.append(measure())
        for thread in threads:
            thread.join()
    published = publisher.wait(timeout=600)
    compared, wrong = count_wrong(root)
    growth = grown(measured)
    result = {
        "seconds": seconds,
        "queries": int(load.times.sum()),
        "versions": len(load.versions),
        "p50_ms": percentile(load.times, 0.5),
        "p99_ms": percentile(load.times, 0.99),
        "p999_ms": percentile(load.times, 0.999),
        "compared": compared,
        "wrong": wrong + len(load.wrong),
        "first": measured[0],
        "last": measured[-1],
        "grown": growth,
    }
    for problem in load.wrong[:5]:
        print(problem)
    print(f"RESULT {json.dumps(result)}")
    return int(bool(wrong or load.wrong or growth or published))


if __name__ == "__main__":
    sys.exit(main())
