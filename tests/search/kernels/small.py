"""Arguments of the compiled kernels: a shard of three documents, and calls that change some of them."""

from typing import Any, NamedTuple

import numpy as np

from lsr_prod.search.kernels import native
from lsr_prod.storage.formats.shard_format import FORWARD_ARRAYS, MATCHING_ARRAYS

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
