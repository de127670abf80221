"""Filters over Arrow columns compared with plain Python, and the mask cache."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filters import field
from lsr_prod.search.shard.mask_cache import Mask, MaskCache
from lsr_prod.search.shard.shard_reader import evaluate
from tests.search.filtering import ROWS, TYPES, batches, brute_force, filters

NOTHING = dict.fromkeys(TYPES)


@settings(deadline=None, max_examples=300)
@given(ROWS, filters(ranges_of_strings=True))
def test_mask_equals_plain_python(rows, expression):
    mask = evaluate(expression, batches(rows))
    assert (mask.dtype, mask.shape) == (np.uint8, (len(rows),))
    assert set(mask.tolist()) <= {0, 1}
    assert np.flatnonzero(mask).tolist() == brute_force(expression, rows)


def test_missing_value_matches_neither_comparison_nor_its_negation():
    rows = batches([{**NOTHING, "year": 2001}, NOTHING])
    after = field("year") > 2000
    assert [evaluate(e, rows).tolist() for e in (after, ~after, after | ~after)] == [[1, 0], [0, 0], [1, 0]]
    assert evaluate(~(after & field("year").is_null()), rows).tolist() == [1, 0]
    assert evaluate(~field("year").is_in([]), rows).tolist() == [1, 0]
    assert evaluate(field("year").is_null(), rows).tolist() == [0, 1]


def test_doc_id_filters_match_by_prefix_and_value():
    rows = batches([NOTHING] * 12)
    ids = field("doc_id")
    assert np.flatnonzero(evaluate(ids.starts_with("d1"), rows)).tolist() == [1, 10, 11]
    assert np.flatnonzero(evaluate(ids.is_in(["d7", "d3", "d99"]) | (ids == "d5"), rows)).tolist() == [3, 5, 7]


def test_shard_without_documents_has_empty_mask():
    assert evaluate(field("year") == 1, []).shape == (0,)


def test_unknown_attribute_raises_query_error():
    with pytest.raises(QueryError, match="no attribute 'yaer'"):
        evaluate(field("yaer") == 1, batches([NOTHING]))


def ones(n: int = 10) -> Mask:
    return Mask.of(np.ones(n, np.uint8), few=n + 1)


def test_mask_is_computed_once_and_read_only():
    cache = MaskCache(900)
    first, second = cache.get("a", ones), cache.get("a", lambda: pytest.fail("computed again"))
    assert first is second
    assert (cache.hits, cache.misses, cache.bytes) == (1, 1, 90)
    with pytest.raises(ValueError, match="read-only"):
        first.allowed[0] = 0


def test_least_recently_used_mask_is_evicted_first():
    cache = MaskCache(270)
    for key in "abcad":
        cache.get(key, ones)
    cache.get("a", lambda: pytest.fail("a was used last"))
    misses = cache.misses
    cache.get("b", ones)
    assert (cache.misses, cache.bytes) == (misses + 1, 270)


def test_mask_larger_than_cache_is_returned_but_not_cached():
    cache = MaskCache(270)
    cache.get("a", ones)
    assert cache.get("large", lambda: ones(31)).nbytes == 279
    cache.get("a", lambda: pytest.fail("a should have stayed"))
    assert cache.bytes == 90


def test_concurrent_threads_share_one_computation():
    cache, computed, barrier = MaskCache(9000), [], threading.Barrier(16)
    found: list[Mask] = []

    def compute() -> Mask:
        computed.append(1)
        time.sleep(0.05)
        return ones()

    def ask() -> None:
        barrier.wait()
        found.append(cache.get("a", compute))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(computed) == 1
    assert all(mask is found[0] for mask in found)
    assert (len(found), cache.hits, cache.misses) == (16, 15, 1)


def test_different_keys_are_computed_concurrently():
    cache, started, release = MaskCache(9000), threading.Event(), threading.Event()

    def slow() -> Mask:
        started.set()
        assert release.wait(10)
        return ones()

    thread = threading.Thread(target=cache.get, args=("slow", slow))
    thread.start()
    assert started.wait(10)
    assert cache.get("quick", ones).nbytes == 90
    release.set()
    thread.join()
    assert cache.misses == 2


def test_failed_computation_is_raised_and_not_cached():
    cache = MaskCache(900)

    def fail() -> Mask:
        raise QueryError("no")

    for _ in range(2):
        with pytest.raises(QueryError, match="no"):
            cache.get("a", fail)
    assert cache.get("a", ones).nbytes == 90
    assert (cache.misses, cache.bytes) == (1, 90)


def test_mask_size_includes_cached_vectors():
    plain = ones(5)
    held = replace(plain, vectors=(np.zeros(6, np.int64), np.zeros(20, np.uint16), np.zeros(20, np.uint8)))
    assert held.nbytes == plain.nbytes + 48 + 40 + 20
