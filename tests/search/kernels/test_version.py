"""The kernels that search all shards of a version: vectors read, hits merged, batches, and wrong arguments."""

from typing import Any

import numpy as np
import pytest

from lsr_prod.search.kernels import native
from tests.search.kernels.small import Row, Term, search, search_batch, shard, version


@pytest.mark.usefixtures("_instructions")
def test_small_version() -> None:
    held = version(shard(), shard())
    rows = (Row("ccc", 22.0, 2, {}, None), Row("ccc", 22.0, 2, {}, None), Row("a", 10.0, 1, {}, None))
    terms = (Term("a", 2.0, "terms"), Term("b", 1.0, "terms"))
    assert search(held, k=3) == (0, 4, rows, terms)
    assert search(held, k=3, skipped=2) == (0, 4, rows[2:], terms)
    assert search(held, k=3, skipped=9) == (0, 4, (), terms)
    assert search(held, k=0)[:3] == (0, 4, ())
    assert search(held, k=9, step=0.5)[2][-1] == Row("a", 5.0, 1, {}, None)
    assert search(held, ids=np.array([-1, 1], np.int32))[1:] == (
        2,
        (rows[0]._replace(score=4.0, overlap=1),) * 2,
        terms,
    )
    assert search(held, required=1 << 40)[1] == 0
    assert search(held, largest=700.0)[:3] == (-3, 0, None)
    assert search(held, ids=np.array([5, 1], np.int32))[:3] == (-1, 7, None)
    assert search(held, deadline=1e-9)[:3] == (1, 0, ())
    assert search(version())[:3] == (0, 0, ())
    kept = version(shard(), alive=np.array([1, 1, 0], np.uint8))
    assert search(kept)[:3] == (0, 1, rows[2:])


@pytest.mark.usefixtures("_instructions")
def test_small_batch() -> None:
    expected = [2, 1], [102, 100, 102, -1], [22.0, 10.0, 12.0, 0.0], [2, 1, 1, 0]
    assert search_batch(version(shard())) == ((0, 1, 7, []), *expected)
    result, numbers, documents, *_ = search_batch(version(shard()), first=1)
    assert (result, numbers, documents) == ((0, 1, 7, []), [0, 1], [-1, -1, 102, -1])
    assert search_batch(version(shard()), first=2)[1] == [0, 0]
    masks = (np.array([1, 1, 0], np.uint8),)
    assert search_batch(version(shard()), masks=masks)[1:3] == ([1, 0], [100, -1, -1, -1])
    kept = version(shard(), alive=np.array([1, 1, 0], np.uint8))
    assert search_batch(kept, masks=(None,))[1] == [1, 0]
    assert search_batch(version(shard()), required=np.array([1, 1, 2]))[1] == [1, 1]
    assert search_batch(version(shard()), weights=np.array([1, 0, 0], np.float32))[1] == [1, 0]
    assert search_batch(version(shard()), deadline=1e-9)[0][0] == 1
    damaged = version(shard(run_windows=np.array([0, 9], np.uint16)))
    assert search_batch(damaged)[0] == (-1, 0, 7, [])


@pytest.mark.parametrize(
    "changed",
    [
        {"ids": np.array([1, 0, 2], np.int32)},
        {"ids": np.array([1, 0, -1], np.int32)},
        {"weights": np.array([1, 2, -1], np.float32)},
        {"weights": np.array([1, 2, np.nan], np.float32)},
        {"weights": np.array([1, 2, np.inf], np.float32)},
        {"largest": 2 * 255.0 + 256},
        {"offsets": np.array([0, 1, 3]), "ids": np.array([1, 0, 0], np.int32)},
    ],
)
def test_impossible_query_of_a_batch_is_named(changed: dict[str, Any]) -> None:
    if "largest" in changed:
        changed = {**changed, "weights": np.array([1, 1, 9], np.float32)}
    result, numbers, *_ = search_batch(version(shard()), **changed)
    assert (result[:2], result[3], numbers[0] > 0, numbers[1]) == ((-3, 1), [], True, 0)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"offsets": np.array([0, 2])}, ValueError, "offsets has 2 items; it must have 3"),
        ({"offsets": np.array([0, 2, 1])}, ValueError, "do not fit the queries"),
        ({"offsets": np.array([0, 2, 4])}, ValueError, "do not fit the queries"),
        ({"offsets": np.array([-1, 2, 3])}, ValueError, "do not fit the queries"),
        ({"offsets": np.array([0, 0, 3])}, ValueError, "do not fit the queries"),  # `required` ends before
        ({"weights": np.ones(2, np.float32)}, ValueError, "weights has 2 items; it must have 3"),
        ({"required": np.ones(3, np.int32)}, TypeError, "required has items of 4 bytes"),
        ({"documents": np.zeros(3, np.int64)}, ValueError, "documents has 3 items; it must have 4"),
        ({"scores": np.zeros(4)}, TypeError, "scores has items of 8 bytes"),
        ({"counts": np.zeros(5, np.uint16)}, ValueError, "counts has 5 items; it must have 4"),
        ({"starts": np.array([0, 1])}, ValueError, "starts has 2 items; it must have 1"),
        ({"masks": (np.ones(2, np.uint8),)}, ValueError, "allowed has 2 items; it must have 3"),
        ({"masks": ()}, ValueError, "0 masks for 1 shards"),
        ({"k": -1}, ValueError, "must be 0 or more"),
        ({"first": -1}, ValueError, "must be 0 or more"),
        ({"dk": -1}, ValueError, "must be 0 or more"),
        ({"vocabulary_size": -1}, ValueError, "must be 0 or more"),
    ],
)
def test_batches_that_do_not_fit_are_refused(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        search_batch(version(shard()), **changed)


def test_masks_of_many_shards_are_read() -> None:
    held = version(*[shard()] * 40)
    starts = np.arange(0, 120, 3)
    masks = [None] * 39 + [np.array([1, 0, 0], np.uint8)]
    empty = [np.zeros(3, np.uint8)] * 39 + masks[39:]
    assert search_batch(held, masks=tuple(empty), starts=starts)[1:3] == ([1, 0], [117, -1, -1, -1])
    assert search_batch(held, masks=tuple(masks), starts=starts)[1] == [2, 2]
    with pytest.raises(ValueError, match="allowed has 2 items; it must have 3"):
        search_batch(held, masks=(*empty[:39], np.zeros(2, np.uint8)), starts=starts)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"weights": np.ones(3, np.float32)}, ValueError, "weights has 3 items; it must have 2"),
        ({"ids": np.array([0, 1])}, TypeError, "ids has items of 8 bytes"),
        ({"terms": ("a",)}, ValueError, "ids has 2 items; it must have 1"),
        ({"terms": ["a", "b"]}, TypeError, "tuple"),
        ({"required": 0}, ValueError, "not possible"),
        ({"k": -1}, ValueError, "not possible"),
        ({"skipped": -1}, ValueError, "not possible"),
        ({"dk": -1}, ValueError, "not possible"),
    ],
)
def test_searches_that_do_not_fit_are_refused(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        search(version(shard()), **changed)


def test_searches_of_too_many_terms_are_refused() -> None:
    many = {"ids": np.full(1 << 16, -1, np.int32), "weights": np.ones(1 << 16, np.float32), "terms": ("a",) * (1 << 16)}
    with pytest.raises(ValueError, match="terms"):
        search(version(shard()), **many)
    for held in (object(), shard(), None):
        with pytest.raises(TypeError, match="version"):
            search(held)
        with pytest.raises(TypeError, match="version"):
            search_batch(held)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"alive": np.ones(2, np.uint8)}, ValueError),
        ({"names": [(4, np.array([0, 1, 3, 6]), b"abbccc")]}, ValueError),
        ({"names": [(3, np.array([0, 1, 3, 6]))]}, ValueError),
        ({"names": ((3, np.array([0, 1, 3, 6]), b"abbccc"),)}, (TypeError, SystemError)),
        ({"verified": bytearray()}, ValueError),
        ({"alive": [1, 1, 1]}, TypeError),
    ],
)
def test_members_that_do_not_fit_are_refused(changed: dict[str, Any], error: Any) -> None:
    with pytest.raises(error):
        version(shard(), **changed)


def test_ids_of_documents_that_are_damaged_are_reported() -> None:
    for offsets in ([0, 1, -1, 6], [0, 1, 3, 7], [0, 1, 7, 6], [1 << 62, 1, 1 << 62, 6]):
        assert search(version(shard(), names=[(3, np.array(offsets), b"abbccc")]))[:3] == (-1, 7, None)
    assert search(version(shard(), names=[(2, np.array([0, 1, 3]), b"abbccc")]))[:3] == (-1, 7, None)
    assert search(version(shard(), names=[]))[:3] == (-1, 7, None)


def test_vectors_are_read_or_left_to_python() -> None:
    ids, names = {"a": 0, "b": 1, "c": 2}, ["a", "b", "c"]

    def read(vector: Any) -> Any:
        found = native.read_vector(vector, ids, names)
        assert found is not None
        return np.frombuffer(found[0], np.int32).tolist(), np.frombuffer(found[1], np.float32).tolist(), found[2]

    assert read({}) == ([], [], ())
    assert read({"a": 1.0, "x": 3.0, "c": 1.0, 1: 2.0, "b0": 0.0}) == (
        [-1, 1, 0, 2],
        [3.0, 2.0, 1.0, 1.0],
        ("x", "b", "a", "c"),
    )
    assert read({"z": 1.0, "y": 1.0, "a": 1.0}) == ([-1, -1, 0], [1.0] * 3, ("y", "z", "a"))
    assert read({"a": 1e-60, "b": 1e-45}) == ([1], [float(np.float32(1e-45))], ("b",))
    odd: list[Any] = [{"a": 1}, {"a": np.float32(1)}, {"a": -1.0}, {"a": float("nan")}, {"a": float("inf")}]
    odd += [
        {"a": 1e39},
        {3: 1.0},
        {-1: 1.0},
        {1 << 80: 1.0},
        {True: 1.0},
        {b"a": 1.0},
        {"a": 1.0, 0: 2.0},
        [("a", 1.0)],
    ]
    odd += [{str(i): 1.0 for i in range(1 << 16)}]
    for vector in odd:
        assert native.read_vector(vector, ids, names) is None, str(vector)[:50]
