"""The compiled kernels are those of the sources, refuse wrong arguments, and shrink their working memory."""

import importlib.util
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsr_prod.search.kernels import native
from tests.search.kernels.small import QUERY, SETS, SHARD, match, search, search_batch, shard, version

ROOT = Path(__file__).parents[3]


def test_kernels_are_compiled_from_these_sources() -> None:
    spec = importlib.util.spec_from_file_location("build_kernels", ROOT / "build_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.digest() == native.SOURCES, "the compiled kernels are stale: run make kernels"


def test_instruction_set_is_chosen_by_name() -> None:
    best = native.choose_instructions()
    assert best == SETS[-1]
    assert native.choose_instructions("plain") == "plain"
    assert native.choose_instructions("sse9") is None
    assert native.choose_instructions(None) == best
    with pytest.raises(TypeError):
        native.choose_instructions(7)  # type: ignore[arg-type]


@pytest.mark.usefixtures("_instructions")
def test_small_shard() -> None:
    assert match(shard()) == (0, 2, 3, [2, 0], [22.0, 10.0], [2, 1])
    assert match(shard(), k=1) == (0, 2, 3, [2], [22.0], [2])
    assert match(shard(), k=0) == (0, 2, 3, [], [], [])
    assert match(shard(), allowed=np.array([1, 1, 0], np.uint8)) == (0, 1, 3, [0], [10.0], [1])
    assert match(shard(), required=2) == (0, 1, 3, [2], [22.0], [2])
    assert match(shard(), required=3) == (0, 0, 3, [], [], [])
    assert match(shard(), floor=10.5) == (0, 2, 3, [2], [22.0], [2])
    assert match(shard(), counted=np.array([0, 1], np.uint8)) == (0, 1, 3, [2], [22.0], [1])
    assert match(shard(), deadline=1e-9)[:3] == (1, 0, 0)
    assert match(shard(), ids=np.array([2, 1], np.int32))[0] == -1
    assert match(shard(), ids=np.array([-1, 1], np.int32))[0] == -1
    marks = np.zeros(3, np.uint8)
    assert match(shard(), k=0, marks=marks)[1] == 2
    assert marks.tolist() == [1, 0, 1]


def test_words_are_scored_by_their_postings() -> None:
    held = shard(
        vocabulary_size=1,
        forward_offsets=np.array([0, 1, 1, 2], np.uint32),
        forward_terms=np.array([0, 0], np.uint16),
        forward_impacts=np.array([5, 9], np.uint8),
    )
    assert match(held) == (0, 2, 3, [2, 0], [22.0, 10.0], [2, 1])


def test_parts_that_are_not_verified_are_named() -> None:
    terms, pages = np.array([True, False]), bytearray(3)
    held = shard(verified_terms=terms, verified_pages=pages, first_pages=(0, 1, 2))
    assert match(held) == (2, 0, 0, [], [], [])
    terms[1] = True
    assert match(held)[0] == 2
    assert sorted(match(held)[3]) == [0, 2]
    pages[:] = b"\1\1\0"
    assert sorted(match(held)[3]) == [0, 2]
    pages[:] = b"\1\1\1"
    assert match(held) == match(shard())
    flags = bytearray(1)
    assert search(version(held, verified=flags))[:3] == (2, 7, [2, 0])
    assert search_batch(version(held, verified=flags))[0] == (0, 1, 7, [])  # it returns no ids
    flags[0] = 1
    assert search(version(held, verified=flags))[:2] == (0, 2)


def test_impacts_are_those_of_the_postings() -> None:
    found = np.full(5, 9, np.uint8)
    assert native.impacts(shard(), 0, np.array([2, 1, 0, 2, 0]), found) == 0
    assert found.tolist() == [9, 0, 5, 9, 5]
    for term, document in ((-1, 0), (2, 0), (1 << 40, 0), (0, 3), (0, -1), (0, 1 << 40)):
        assert native.impacts(shard(), term, np.array([document]), np.zeros(1, np.uint8)) == -1
    with pytest.raises(ValueError, match="impacts has 2 items; it must have 1"):
        native.impacts(shard(), 0, np.array([0]), np.zeros(2, np.uint8))
    with pytest.raises(TypeError, match="documents has items of 4 bytes; they must have 8"):
        native.impacts(shard(), 0, np.array([0], np.int32), np.zeros(1, np.uint8))
    with pytest.raises(BufferError, match="not writable"):
        native.impacts(shard(), 0, np.array([0]), b"1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected .*Shard, got object"):
        native.impacts(object(), 0, np.array([0]), np.zeros(1, np.uint8))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"term_runs": np.array([0, 1, 2])}, TypeError, "term_runs has items of 8 bytes; they must have 4"),
        ({"term_postings": np.array([0], np.uint32)}, ValueError, "term_postings has 1 items; it must have 3"),
        ({"term_ids": np.array([0], np.uint32)}, ValueError, "term_ids has 1 items; it must have 3"),
        ({"term_tenths": np.zeros(3, np.uint8)}, ValueError, "term_tenths has 3 items; it must have 2"),
        ({"term_hundredths": np.zeros(1, np.uint8)}, ValueError, "term_hundredths has 1 items; it must have 2"),
        ({"run_windows": np.array([1, 1], np.int32)}, TypeError, "run_windows has items of 4 bytes; they must have 2"),
        ({"run_counts": np.array([1], np.uint16)}, ValueError, "run_counts has 1 items; it must have 2"),
        ({"ids": np.array([0, 2, 2], np.uint8)}, TypeError, "ids has items of 1 bytes; they must have 2"),
        ({"impacts": np.array([0, 2, 2], np.uint16)}, TypeError, "impacts has items of 2 bytes; they must have 1"),
        ({"verified_terms": np.ones(1, bool)}, ValueError, "verified_terms has 1 items; it must have 2"),
        ({"forward_offsets": np.zeros(0, np.uint32)}, ValueError, "do not fit together"),
        ({"forward_terms": np.zeros(3, np.int64)}, TypeError, "forward_terms has items of 8 bytes"),
        ({"forward_impacts": np.zeros(2, np.uint8)}, ValueError, "forward_impacts has 2 items; it must have 3"),
        ({"vocabulary_size": -1}, ValueError, "not possible"),
        ({"first_pages": (0, 0), "heads": (1, 1)}, ValueError, "number of arrays"),
        ({"term_runs": [0, 1, 2]}, TypeError, "bytes-like"),
        ({"ids": np.arange(6, dtype=np.uint16)[::2]}, ValueError, "contiguous"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        shard(**changed)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"ids": np.array([0, 1])}, TypeError, "ids has items of 8 bytes; they must have 4"),
        ({"weights": np.ones(3, np.float32)}, ValueError, "weights has 3 items; it must have 2"),
        ({"weights": np.ones(2)}, TypeError, "weights has items of 8 bytes; they must have 4"),
        ({"counted": np.ones(1, np.uint8)}, ValueError, "counted has 1 items; it must have 2"),
        ({"allowed": np.ones(2, np.uint8)}, ValueError, "allowed has 2 items; it must have 3"),
        ({"marks": np.ones(4, np.uint8)}, ValueError, "marks has 4 items; it must have 3"),
        ({"marks": bytes(3)}, BufferError, "not writable"),
        ({"k": -1}, ValueError, "not possible"),
        ({"dk": -1}, ValueError, "not possible"),
        ({"required": 0}, ValueError, "not possible"),
        ({"required": (1 << 16) + 1}, ValueError, "not possible"),
        ({"k": 1 << 80}, OverflowError, "too large"),
        ({"floor": "x"}, TypeError, "real number"),
    ],
)
def test_queries_that_do_not_fit_are_refused(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        match(shard(), **changed)


def test_queries_of_too_many_terms_are_refused() -> None:
    ids = np.zeros(1 << 16, np.int32)
    with pytest.raises(ValueError, match="not possible"):
        match(shard(), ids=ids, weights=ids.astype(np.float32), counted=np.ones(1 << 16, np.uint8))
    for held in (object(), version(shard()), None):
        with pytest.raises(TypeError, match="shard"):
            match(held)


@pytest.mark.usefixtures("_instructions")
def test_no_document_shares_more_terms_than_the_largest_query_has() -> None:
    terms = (1 << 16) - 1
    begins = np.minimum(np.arange(terms + 1), 1).astype(np.uint32)
    one = np.zeros(1, np.uint16)
    held = shard(
        term_runs=begins,
        term_postings=begins,
        term_ids=begins,
        term_tenths=np.zeros(terms, np.uint8),
        term_hundredths=np.zeros(terms, np.uint8),
        run_windows=one,
        run_counts=one,
        ids=one,
        impacts=np.array([5], np.uint8),
        forward_offsets=np.array([0, 1, 1, 1], np.uint32),
        forward_terms=one,
        forward_impacts=np.array([5], np.uint8),
        vocabulary_size=terms,
    )
    ids, weights, counted = np.arange(terms, dtype=np.int32), np.ones(terms, np.float32), np.ones(terms, np.uint8)
    for required, matched in ((1, 1), (2, 0), (terms, 0), (terms + 1, 0)):
        query = {"ids": ids, "weights": weights, "counted": counted, "required": required}
        assert match(held, **query)[1:4] == (matched, 1, [0] * matched)


def test_scores_that_do_not_fit_are_refused() -> None:
    forward = [SHARD[name] for name in ("forward_offsets", "forward_terms", "forward_impacts")]
    ids, weights = QUERY["ids"], QUERY["weights"]

    def score(documents: Any, scores: Any, counts: Any, dk: int = 64, size: int = 2) -> int:
        return native.score(*forward, documents, dk, ids, weights, size, scores, counts)

    outputs = np.zeros(2, np.float32), np.zeros(2, np.uint16)
    assert score(np.array([2, 0]), *outputs) == 0
    assert [each.tolist() for each in outputs] == [[22.0, 10.0], [2, 1]]
    assert score(np.array([2, 3]), *outputs) == score(np.array([-1, 0]), *outputs) == -1
    assert score(np.array([2, 0]), *outputs, size=1) == -1
    with pytest.raises(ValueError, match="scores has 2 items; it must have 1"):
        score(np.array([2]), *outputs)
    for wrong in ({"dk": -1}, {"size": -1}):
        with pytest.raises(ValueError, match="not possible"):
            score(np.array([2, 0]), *outputs, **wrong)


def test_working_memory_shrinks_after_queries_that_need_little() -> None:
    sizes = []

    def work() -> None:
        documents = 1 << 20
        match(shard(forward_offsets=np.zeros(documents + 1, np.uint32), ids=np.zeros(3, np.uint16)), k=100_000)
        sizes.append(native.workspace_bytes())
        for _ in range(2049):
            match(shard())
        sizes.append(native.workspace_bytes())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert sizes[0] > sizes[1] + 100_000
