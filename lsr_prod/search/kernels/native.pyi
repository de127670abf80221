"""Functions of the compiled kernels. The GIL is released while one runs.

Arrays are C-contiguous; an array whose items have another size raises ``TypeError``, one of another length
``ValueError``. All raise ``MemoryError``. The arrays of a shard may contain anything: the kernels never read outside.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[Any]

SOURCES: str
"""sha256 of the sources and flags that this file was compiled from; ``build_kernels.digest``."""

def Postings(
    term_runs: _Array,
    term_postings: _Array,
    run_gaps: _Array,
    run_counts: _Array,
    run_maxima: _Array,
    term_ids: _Array,
    term_impacts: _Array,
    ids: _Array,
    impacts: _Array,
    id_rank: _Array,
    documents: int,
    block_size: int,
    compressed: bool,
) -> object:
    """Hold the arrays of a shard (``formats.shard``) for ``match``."""

def match(
    postings: object,
    ids: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    counted: npt.NDArray[np.uint8],
    required: int,
    k: int,
    floor: float,
    exhaustive: bool,
    allowed: npt.NDArray[np.uint8] | None,
    deadline: float,
) -> tuple[int, int, bool, int, list[int], list[float], list[int]]:
    """Find the best documents of a shard.

    Args:
        postings: from ``Postings``.
        ids: [q], distinct terms of the postings, in the query's order.
        weights: [q], score per impact unit, 0 or more.
        counted: [q], 1 if the term counts towards ``required``.
        required: counted terms that a match must share, 1 or more.
        k: hits wanted.
        floor: lowest score of a hit.
        exhaustive: read every block that can hold a match, so that all matches are counted.
        allowed: [N], 1 for documents that may be found; None: all.
        deadline: ``time.monotonic()`` after which to stop; 0: none.

    Returns:
        State (0 done, 1 the deadline passed, -1 the arrays contradict each other), documents read that match, whether
        blocks were skipped because none of their documents can be a hit, postings read, and of each hit, the best
        first: ordinal, score, shared terms.
    """

def match_batch(
    postings: object,
    offsets: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int32],
    weights: npt.NDArray[np.float32],
    required: npt.NDArray[np.int64],
    floors: npt.NDArray[np.float32],
    allowed: npt.NDArray[np.uint8] | None,
    k: int,
    vocabulary_size: int,
    step: float,
    largest: float,
    deadline: float,
    documents: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
    counts: npt.NDArray[np.uint16],
    numbers: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Find the best documents of a shard for n queries, whose terms may be in any order.

    Args:
        postings: from ``Postings``.
        offsets: [n + 1], where the terms of each query begin.
        ids: terms.
        weights: their weights; terms of weight 0 are ignored.
        required: [largest number of terms + 1], terms that a match must share, by the number of terms of a query.
        floors: [n], lowest score of a hit.
        allowed: [N], 1 for documents that may be found; None: all.
        k: hits per query.
        vocabulary_size: V.
        step: score of one impact unit for a weight of 1.
        largest: largest possible score that is accepted.
        deadline: as in ``match``.
        documents: [n x k], out: ordinals, the best hit of a query first.
        scores: [n x k], out.
        counts: [n x k], out: shared terms.
        numbers: [n], out: hits of each query.

    Returns:
        State as in ``match``, or -3 if a query is not valid, and the number of the query that ended the call.
    """

def score(
    offsets: npt.NDArray[np.int64],
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

def workspace_bytes() -> int:
    """Return the bytes of working memory that this thread holds."""

def count_runs(offsets: _Array, terms: _Array, dk: int, block_size: int, runs: _Array, postings: _Array) -> int:
    """Add the runs and postings of every term to int64 [T] ``runs`` and ``postings``."""

def fill_postings(
    offsets: _Array,
    terms: _Array,
    impacts: _Array,
    dk: int,
    block_size: int,
    next_run: _Array,
    next_posting: _Array,
    run_gaps: _Array,
    run_counts: _Array,
    run_maxima: _Array,
    ids: _Array,
    posting_impacts: _Array,
) -> int:
    """Write the postings of every term; int64 [T] ``next_run`` and ``next_posting`` say where they begin."""

def measure_compressed(
    term_runs: _Array, run_gaps: _Array, run_counts: _Array, term_ids: _Array, term_impacts: _Array
) -> int:
    """Compute where the compressed ids and impacts of each term begin."""

def compress_runs(
    term_runs: _Array,
    term_postings: _Array,
    run_gaps: _Array,
    run_counts: _Array,
    ids: _Array,
    impacts: _Array,
    compressed_ids: _Array,
    compressed_impacts: _Array,
) -> int:
    """Write the compressed ids and impacts."""

def bisect_sets(
    places: _Array,
    bounds: _Array,
    cuts: _Array,
    first: int,
    last: int,
    offsets: _Array,
    terms: _Array,
    vocabulary_size: int,
    logs: _Array,
) -> int:
    """Split sets ``first`` to ``last - 1`` of ``indexing.impacts.order``: reorder int64 [N] ``places`` inside each."""
