"""Functions of the compiled kernels. The GIL is released while one runs.

Arrays are C-contiguous; an array whose items have another size raises ``TypeError``, one of another length
``ValueError``. All raise ``MemoryError``. The arrays of a shard may contain anything: the kernels never read outside.

States: 0 done, 1 the deadline passed, 2 pages must be verified first, -1 the arrays contradict each other, -3 a query
is not valid. After state 2 the caller verifies the query's terms and the documents that are named, and calls again.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[Any]

SOURCES: str
"""sha256 of the sources and flags that this file was compiled from; ``build_kernels.digest``."""

def Shard(
    matching: tuple[_Array, ...],
    forward: tuple[_Array, ...],
    verified_terms: npt.NDArray[np.bool_] | None,
    verified_pages: bytearray | None,
    pages: tuple[tuple[int, int], ...],
    vocabulary_size: int,
) -> object:
    """Hold the arrays of a shard (``formats.shard``).

    Args:
        matching: the arrays that matching reads, in the order of the format.
        forward: the forward arrays.
        verified_terms: [T], whether a term may be read; None: all may.
        verified_pages: 1 for the pages of the forward arrays that may be read; None: all may.
        pages: of each forward array the place of its first page in ``verified_pages``, and the byte of its first item
            in its file.
        vocabulary_size: V.
    """

def match(
    shard: object,
    ids: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    counted: npt.NDArray[np.uint8],
    required: int,
    k: int,
    dk: int,
    floor: float,
    scan_share: float,
    allowed: npt.NDArray[np.uint8] | None,
    deadline: float,
    marks: npt.NDArray[np.uint8] | None,
) -> tuple[int, int, int, list[int], list[float], list[int]]:
    """Find the best documents of a shard.

    Args:
        shard: from ``Shard``.
        ids: [q], distinct terms of the postings, in the query's order; words last.
        weights: [q], score per impact unit, 0 or more.
        counted: [q], 1 if the term counts towards ``required``.
        required: counted terms that a match must share, 1 or more.
        k: hits wanted.
        dk: terms of a document that have postings.
        floor: lowest score of a hit.
        scan_share: share of what the terms can add to a score, above 0; the terms that add least beyond it are only
            scored, if ``required`` is 1. 1: all are scanned.
        allowed: [N], 1 for documents that may be found; None: all.
        deadline: ``time.monotonic()`` after which to stop; 0: none.
        marks: [N], out: 1 for every match; None: not wanted.

    Returns:
        State, matches, postings read, and of each hit, the best first: ordinal, score, shared terms. State 2: the
        ordinals of documents whose vectors must be verified.
    """

def impacts(shard: object, term: int, documents: npt.NDArray[np.int64], found: npt.NDArray[np.uint8]) -> int:
    """Write the impact of a term in the postings of each document, 0 where it is not there; returns the state."""

def score(
    offsets: npt.NDArray[np.uint32],
    terms: _Array,
    impacts: npt.NDArray[np.uint8],
    documents: npt.NDArray[np.int64],
    dk: int,
    ids: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    vocabulary_size: int,
    scores: npt.NDArray[np.float32],
    counts: npt.NDArray[np.uint16],
) -> int:
    """Score given documents from their vectors, in the query's order.

    Args:
        offsets: with ``terms`` and ``impacts``: the forward arrays of ``formats.shard``.
        terms: term ids.
        impacts: impacts.
        documents: [n], ordinals inside the shard.
        dk: number of terms read per document, heaviest first.
        ids: [q].
        weights: [q], score per impact unit.
        vocabulary_size: V.
        scores: [n], out.
        counts: [n], out: shared terms.

    Returns:
        0, or -1 if the arrays are damaged.
    """

def Version(members: tuple[tuple[object, int, Any, list[tuple[int, Any, Any]], Any], ...], batch: int) -> object:
    """Hold the shards of a version.

    Args:
        members: shard from ``Shard``, its number in the version, uint8 [N] of documents that may be found or None, its
            ids by batch (number, int64 offsets, UTF-8 bytes), and the flags of verified batches or None.
        batch: documents of a batch.
    """

def read_vector(
    vector: Mapping[Any, Any], ids: dict[str, int], names: list[str]
) -> tuple[bytes, bytes, tuple[str, ...]] | None:
    """Sort the terms of a vector, the heaviest first, ties by rising id, then by name; those of weight 0 are left out.

    Returns:
        int32 ids (-1: not in ``ids``), float32 weights, and terms; None if the vector is no ``dict`` of strings or ids
        to floats that are possible, which the caller then judges.
    """

def search(
    version: object,
    ids: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    terms: tuple[str, ...],
    required: int,
    k: int,
    skipped: int,
    dk: int,
    floor: float,
    scan_share: float,
    step: float,
    largest: float,
    deadline: float,
    hit: type,
    query_term: type,
) -> tuple[int, int, Any, Any]:
    """Search all shards of a version.

    Args:
        version: from ``Version``.
        ids: [q], distinct terms, -1 for those that no document has.
        weights: [q], before ``step``.
        terms: [q], as strings.
        required: terms that a match must share.
        k: hits of this page and those before it.
        skipped: hits before this page.
        dk: as in ``match``.
        floor: as in ``match``.
        scan_share: as in ``match``.
        step: score of one impact unit for a weight of 1.
        largest: largest possible score that is accepted.
        deadline: as in ``match``.
        hit: class of the hits: doc_id, score, shared terms, an empty mapping, None.
        query_term: class of the terms: string, weight, "terms".

    Returns:
        State, number of matches, hits and query terms; state 2: the number of a shard and the documents to verify in
        it; below 0: the number of a shard and None.
    """

def search_batch(
    version: object,
    offsets: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    required: npt.NDArray[np.int64],
    first: int,
    k: int,
    dk: int,
    vocabulary_size: int,
    floor: float,
    scan_share: float,
    step: float,
    largest: float,
    deadline: float,
    masks: tuple[npt.NDArray[np.uint8] | None, ...] | None,
    numbers: npt.NDArray[np.int64],
    documents: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
    counts: npt.NDArray[np.uint16],
    starts: npt.NDArray[np.int64],
) -> tuple[int, int, int, list[int]]:
    """Search all shards of a version for n queries, whose terms may be in any order.

    Args:
        version: from ``Version``.
        offsets: [n + 1], where the terms of each query begin.
        ids: terms.
        weights: their weights before ``step``; terms of weight 0 are ignored.
        required: [largest number of terms + 1], terms that a match must share, by the number of terms of a query.
        first: the query to begin with; the results of those before it are kept.
        k: hits per query.
        dk: as in ``match``.
        vocabulary_size: V.
        floor: as in ``match``.
        scan_share: as in ``match``.
        step: as in ``search``.
        largest: as in ``search``.
        deadline: as in ``match``.
        masks: documents that may be found, by shard; None: those of the version.
        numbers: [n], out: hits of each query.
        documents: [n x k], out: numbers of documents, the best hit of a query first.
        scores: [n x k], out.
        counts: [n x k], out: shared terms.
        starts: number of the first document of each shard.

    Returns:
        State, the query that ended the call, the number of the shard where it did; state 2: the documents to verify.
    """

def workspace_bytes() -> int:
    """Return the bytes of working memory that this thread holds."""

def choose_instructions(name: str | None = None) -> str | None:
    """Choose the instruction set of this process: ``avx512``, ``avx2``, ``plain``, or the best one of the CPU.

    Returns:
        Its name; None if the CPU does not have it, and nothing changes.
    """
