"""The compiled kernels are those of the sources, refuse wrong arguments, and shrink their working memory."""

import importlib.util
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from lsr_prod.formats.shard import FORWARD_ARRAYS, MATCHING_ARRAYS
from lsr_prod.search.kernels import native

ROOT = Path(__file__).parents[3]
SETS = [name for name in ("plain", "avx2", "avx512") if native.choose_instructions(name)]
native.choose_instructions()
# Three documents: the first has term 0, the second none, the third both.
SHARD: dict[str, Any] = {
    "term_runs": np.array([0, 1, 2], np.uint32),
    "term_postings": np.array([0, 2, 3], np.uint32),
    "term_ids": np.array([0, 2, 3], np.uint32),
    "term_tenths": np.zeros(2, np.uint8),
    "term_hundredths": np.zeros(2, np.uint8),
    "run_windows": np.array([0, 0], np.uint16),
    "run_counts": np.array([1, 0], np.uint16),
    "ids": np.array([0, 2, 2], np.uint16),
    "impacts": np.array([5, 9, 4], np.uint8),
    "verified_terms": None,
    "forward_offsets": np.array([0, 1, 1, 3], np.uint32),
    "forward_terms": np.array([0, 0, 1], np.uint16),
    "forward_impacts": np.array([5, 9, 4], np.uint8),
    "verified_pages": None,
    "vocabulary_size": 2,
    "first_pages": (0, 0, 0),
    "heads": (128, 128, 128),
}
QUERY = {
    "ids": np.array([0, 1], np.int32),
    "weights": np.array([2, 1], np.float32),
    "counted": np.ones(2, np.uint8),
    "required": 1,
    "k": 2,
    "dk": 64,
    "floor": 0.0,
    "scan_share": 1.0,
    "allowed": None,
    "deadline": 0.0,
    "marks": None,
}
NAMES = [(3, np.array([0, 1, 3, 6]), b"abbccc")]


class Row(NamedTuple):
    """A hit."""

    doc_id: str
    score: float
    overlap: int
    fields: Any
    value: Any


class Term(NamedTuple):
    """A query term."""

    term: str
    weight: float
    field: str


def shard(**changed: Any) -> object:
    given = {**SHARD, **changed}
    matching = tuple(given[name] for name in MATCHING_ARRAYS)
    forward = tuple(given[name] for name in FORWARD_ARRAYS)
    pages = tuple(zip(given["first_pages"], given["heads"], strict=True))
    return native.Shard(
        matching, forward, given["verified_terms"], given["verified_pages"], pages, given["vocabulary_size"]
    )


def match(held: object, **changed: Any) -> Any:
    return native.match(held, *{**QUERY, **changed}.values())


def version(*held: object, **changed: Any) -> object:
    given = {"alive": None, "names": NAMES, "verified": None, **changed}
    return native.Version(tuple((one, 7 + number, *given.values()) for number, one in enumerate(held)), 16384)


def search(held: object, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "ids": QUERY["ids"],
        "weights": QUERY["weights"],
        "terms": ("a", "b"),
        "required": 1,
        "k": 2,
        "skipped": 0,
        "dk": 64,
        "floor": 0.0,
        "scan_share": 1.0,
        "step": 1.0,
        "largest": 1e38,
        "deadline": 0.0,
        "hit": Row,
        "query_term": Term,
    }
    return native.search(held, *{**given, **changed}.values())


def search_batch(held: object, **changed: Any) -> tuple[Any, ...]:
    """Search for two queries; return the result and the outputs."""
    given: dict[str, Any] = {
        "offsets": np.array([0, 2, 3]),
        "ids": np.array([1, 0, 1], np.int32),
        "weights": np.array([1, 2, 3], np.float32),
        "required": np.ones(3, np.int64),
        "first": 0,
        "k": 2,
        "dk": 64,
        "vocabulary_size": 2,
        "floor": 0.0,
        "scan_share": 1.0,
        "step": 1.0,
        "largest": 1e38,
        "deadline": 0.0,
        "masks": None,
        "numbers": np.zeros(2, np.int64),
        "documents": np.full(4, -1),
        "scores": np.zeros(4, np.float32),
        "counts": np.zeros(4, np.uint16),
        "starts": np.array([100]),
    }
    given |= changed
    result = native.search_batch(held, *given.values())
    return result, *(given[name].tolist() for name in ("numbers", "documents", "scores", "counts"))


def test_kernels_are_compiled_from_these_sources() -> None:
    spec = importlib.util.spec_from_file_location("build_kernels", ROOT / "build_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.digest() == native.SOURCES, "the compiled kernels are stale: run make kernels"


@pytest.fixture(params=SETS)
def _instructions(request: pytest.FixtureRequest) -> Any:
    """Every instruction set of this CPU."""
    assert native.choose_instructions(request.param) == request.param
    yield
    native.choose_instructions()


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
    with pytest.raises(ValueError, match="PyCapsule"):
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
        ({"first_pages": (0, 0), "heads": (1, 1)}, TypeError, "sequence"),
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
        ({"k": 1 << 80}, OverflowError, "too big"),
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
    for held in (object(), version(shard())):
        with pytest.raises(ValueError, match="PyCapsule"):
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
        ({"masks": ()}, IndexError, "out of range"),
        ({"k": -1}, ValueError, "must be 0 or more"),
        ({"first": -1}, ValueError, "must be 0 or more"),
        ({"dk": -1}, ValueError, "must be 0 or more"),
        ({"vocabulary_size": -1}, ValueError, "must be 0 or more"),
    ],
)
def test_batches_that_do_not_fit_are_refused(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        search_batch(version(shard()), **changed)


def test_more_masks_than_a_call_holds_buffers_are_read() -> None:
    held = version(*[shard()] * 40)
    starts = np.arange(0, 120, 3)
    masks = [None] * 39 + [np.array([1, 0, 0], np.uint8)]
    empty = [np.zeros(3, np.uint8)] * 39 + masks[39:]
    assert search_batch(held, masks=tuple(empty), starts=starts)[1:3] == ([1, 0], [117, -1, -1, -1])
    assert search_batch(held, masks=tuple(masks), starts=starts)[1] == [2, 2]
    with pytest.raises(ValueError, match="another length"):
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
    for held in (object(), shard()):
        with pytest.raises(ValueError, match="PyCapsule"):
            search(held)
        with pytest.raises(ValueError, match="PyCapsule"):
            search_batch(held)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"alive": np.ones(2, np.uint8)}, ValueError),
        ({"names": [(4, np.array([0, 1, 3, 6]), b"abbccc")]}, ValueError),
        ({"names": [(3, np.array([0, 1, 3, 6]))]}, TypeError),
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


def test_vectors_of_a_build_that_do_not_fit_are_refused() -> None:
    counts = [np.zeros(2, np.int64) for _ in range(3)]
    offsets, terms = SHARD["forward_offsets"], SHARD["forward_terms"]
    assert native.count_runs(offsets, terms, 64, *counts) == 0
    assert [each.tolist() for each in counts] == [[1, 1], [2, 1], [2, 1]]
    for given in (
        (np.array([0, 1, 4], np.uint32), terms),
        (np.array([0, 2, 1], np.uint32), terms),
        (np.zeros(0, np.uint32), terms),
        (offsets, np.array([0, 0, 2], np.uint16)),
        (offsets, np.array([0, 0, -1], np.int32)),
    ):
        with pytest.raises(ValueError, match="outside their range"):
            native.count_runs(*given, 64, *counts)
    with pytest.raises(ValueError, match="ids has 1 items; it must have 2"):
        native.count_runs(offsets, terms, 64, counts[0], counts[1], np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="tenths has 1 items; it must have 2"):
        native.rank_impacts(SHARD["term_postings"], SHARD["impacts"], np.zeros(1, np.uint8), np.zeros(2, np.uint8))


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
