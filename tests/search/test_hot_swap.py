"""Queries from eight threads while versions are published, rolled back and refreshed."""

import gc
import os
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.indexing.publish import rollback
from lsr_prod.search import Searcher
from lsr_prod.search.query.filters import field
from lsr_prod.storage.publications import current_publication, read_publication
from tests.indexing.corpus import Doc, make_index

V = 40
THREADS = 8
TYPES = {"year": "int64"}


def corpus(seed: int) -> dict[str, Doc]:
    """Return documents of which the first hundred are the same in every version."""
    rng, found = np.random.default_rng(0), {}
    for i in range(600):
        if i == 100:
            rng = np.random.default_rng(seed)
        terms = {int(t): int(x) for t, x in zip(rng.choice(V, 6, replace=False), range(60, 0, -10), strict=True)}
        found[f"d{i:03d}"] = Doc(terms, f"text {i} of {seed}", {"year": str(int(rng.integers(1990, 2020)))})
    return found


QUERIES = [
    ({t: 1.0 + t % 3 for t in range(n, n + 5)}, {"k": k, "min_terms": required, "filter": expression, "fields": fields})
    for n in range(0, 30, 5)
    for k, required, expression, fields in [
        (10, 1, None, ("text",)),
        (50, 2, field("year") >= 2005, ("year",)),
        (600, 1, None, ()),
    ]
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swap") / "index"
    for seed, shards, gone in [(1, 1, ()), (2, 3, ("d005", "d300")), (1, 1, ("d007", "d450")), (3, 2, ())]:
        make_index(folder, corpus(seed), vocabulary_size=V, shards=shards, deleted=gone, attributes=TYPES)
    return folder


def answers(searcher: Searcher) -> list[tuple[str, object]]:
    return [answer(searcher, number) for number in range(len(QUERIES))]


def answer(searcher: Searcher, number: int) -> tuple[str, object]:
    vector, options = QUERIES[number]
    result = searcher.search_vector(vector, **options)
    return result.version, (result.hits, result.required, result.matched, result.matched_exact)


def maps_of(folder: Path) -> int:
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_open_version_keeps_one_file_descriptor_for_its_lock(index):
    before = descriptors()
    searcher = Searcher.open(index)
    answers(searcher)
    assert descriptors() == before + 1
    assert maps_of(index) > 10
    del searcher
    gc.collect()
    assert maps_of(index) == 0


def swap(index: Path, reads: int) -> Counter[str]:
    """Query from threads, at least ``reads`` times, while versions are swapped; return the queries per version."""
    last = 4
    expected = {}
    for number in range(1, last + 1):
        rollback(index, number)
        expected[read_publication(index, number).version] = [found for _, found in answers(Searcher.open(index))]
    assert len(expected) == 4
    searcher, stop = Searcher.open(index), threading.Event()
    seen: list[Counter[str]] = [Counter() for _ in range(THREADS)]
    failures: list[object] = []

    def read(thread: int) -> None:
        rng = np.random.default_rng(thread)
        try:
            while not stop.is_set():
                number = int(rng.integers(0, len(QUERIES)))
                version, found = answer(searcher, number)
                seen[thread][version] += 1
                if found != expected[version][number]:
                    failures.append((version, number, found))
        except BaseException as error:  # noqa: BLE001 - an error of any kind fails the test
            failures.append(error)

    threads = [threading.Thread(target=read, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    swaps = 0
    while not failures and (swaps < 12 or sum(seen, Counter()).total() < reads):
        version = rollback(index, 1 + swaps % last).version
        searcher.refresh()
        assert searcher.search_vector({1: 1.0}).version == version
        swaps += 1
        prune(index, last)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    return sum(seen, Counter())


def prune(index: Path, keep: int) -> None:
    """Delete all old publications except the first ``keep``, because a long history would slow the test."""
    for number in range(keep + 1, current_publication(index).number - 2):
        (index / "publications" / f"{number:06d}.json").unlink(missing_ok=True)


def check(index: Path, reads: int) -> None:
    swap(index, 100)  # warm up: compiles, imports and fills caches
    gc.collect()
    before = descriptors(), maps_of(index), len(threading.enumerate())
    assert before[1] == 0
    by_version = swap(index, reads)
    assert by_version.total() >= reads
    assert len(by_version) == 4
    gc.collect()
    assert (descriptors(), maps_of(index), len(threading.enumerate())) == before


@pytest.mark.long
def test_every_result_comes_from_one_version_without_leaks(index):
    check(index, 2_000)


@pytest.mark.slow
def test_ten_thousand_reads_come_from_one_version_without_leaks(index):
    check(index, 10_000)
