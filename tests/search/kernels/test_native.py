"""The compiled kernels are those of the sources, refuse wrong arguments, and shrink their working memory."""

import importlib.util
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsr_prod.search.kernels import native

ROOT = Path(__file__).parents[3]
SHARD: dict[str, Any] = {
    "term_runs": np.array([0, 1, 2], np.uint32),
    "term_postings": np.array([0, 2, 3]),
    "run_gaps": np.array([1, 1], np.uint8),
    "run_counts": np.array([1, 0], np.uint8),
    "run_maxima": np.array([9, 4], np.uint8),
    "term_ids": np.array([0, 2, 3]),
    "term_impacts": np.array([0, 2, 3]),
    "ids": np.array([0, 2, 2], np.uint8),
    "impacts": np.array([5, 9, 4], np.uint8),
    "id_rank": np.array([0, 1, 2], np.uint32),
}
QUERY = (np.array([0, 1], np.int32), np.array([2, 1], np.float32), np.ones(2, np.uint8))


def shard(**changed: Any) -> object:
    return native.Postings(*{**SHARD, **changed}.values(), 3, 256, False)


def match(held: object, *, k: int = 2, allowed: Any = None, required: int = 1) -> Any:
    return native.match(held, *QUERY, required, k, 0.0, False, allowed, 0.0)


def test_kernels_are_compiled_from_these_sources() -> None:
    spec = importlib.util.spec_from_file_location("build_kernels", ROOT / "build_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.digest() == native.SOURCES, "the compiled kernels are stale: run make kernels"


def test_small_shard() -> None:
    assert match(shard()) == (0, 2, False, 3, [2, 0], [22.0, 10.0], [2, 1])
    assert match(shard(), k=0)[4] == []
    assert match(shard(), allowed=np.array([1, 1, 0], np.uint8))[4] == [0]
    assert match(shard(), required=2)[4] == [2]


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"run_gaps": np.array([1, 1], np.int32)}, TypeError, "run_gaps has items of 4 bytes; they must have 1"),
        ({"run_maxima": np.array([1], np.uint8)}, ValueError, "run_maxima has 1 items; it must have 2"),
        ({"id_rank": np.array([1], np.uint32)}, ValueError, "id_rank has 1 items; it must have 3"),
        ({"ids": np.array([0, 2, 2], np.uint16)}, ValueError, "do not fit together"),
        ({"term_runs": [0, 1, 2]}, TypeError, "bytes-like"),
        ({"ids": np.arange(6, dtype=np.uint8)[::2]}, ValueError, "contiguous"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        shard(**changed)


def test_queries_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="allowed has 2 items; it must have 3"):
        match(shard(), allowed=np.ones(2, np.uint8))
    with pytest.raises(ValueError, match="k 0 or more"):
        match(shard(), k=-1)
    with pytest.raises(ValueError, match="PyCapsule"):
        match(object())


def test_query_over_more_windows_than_marks_are_kept_for() -> None:
    documents, terms, skip = 60_000, 300, 255
    rng = np.random.default_rng(3)
    impacts = np.where(rng.random((terms, documents)) < 0.02, rng.integers(1, 256, (terms, documents)), 0)
    impacts[:4, rng.random(documents) < 0.5] = 7  # terms without a skipped run
    gaps, maxima, runs = [], [], [0]
    for row in impacts:
        places = np.flatnonzero(row)
        steps = np.diff(places, prepend=-1)
        of_term = [[skip] * int(step // skip) + [int(step % skip)] for step in steps]
        gaps += [gap for some in of_term for gap in some]
        for some, place in zip(of_term, places, strict=True):
            maxima += [0] * (len(some) - 1) + [row[place]]
        runs.append(len(gaps))
    postings = np.concatenate(([0], np.cumsum((impacts > 0).sum(1))))
    found = impacts[impacts > 0].astype(np.uint8)
    arrays = [np.array(runs, np.uint32), postings, np.array(gaps, np.uint8), np.zeros(len(gaps), np.uint8)]
    arrays += [np.array(maxima, np.uint8), postings, postings, np.zeros(len(found), np.uint8), found]
    held = native.Postings(*arrays, np.arange(documents, dtype=np.uint32), documents, 1, False)
    weights = rng.exponential(size=terms).astype(np.float32)
    scores = np.zeros(documents, np.float32)
    for weight, row in zip(weights, impacts, strict=True):
        scores += weight * row.astype(np.float32)
    for required in (1, 5):
        counts = (impacts > 0).sum(0)
        best = np.lexsort((np.arange(documents), -np.where(counts >= required, scores, -1)))[:20]
        query = (np.arange(terms, dtype=np.int32), weights, np.ones(terms, np.uint8))
        state, *_, ordinals, values, shared = native.match(held, *query, required, 20, 0.0, False, None, 0.0)
        assert (state, ordinals, values, shared) == (0, best.tolist(), scores[best].tolist(), counts[best].tolist())


def test_working_memory_shrinks_after_queries_that_need_little() -> None:
    sizes = []

    def work() -> None:
        documents = 1 << 20
        big = {**SHARD, "id_rank": np.zeros(documents, np.uint32)}
        match(native.Postings(*big.values(), documents, 256, False), k=10_000)
        sizes.append(native.workspace_bytes())
        for _ in range(2049):
            match(shard())
        sizes.append(native.workspace_bytes())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert sizes[0] > sizes[1] + 100_000
