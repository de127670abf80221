"""Arguments of ``match_shard`` by name, and the places of its progress array; importable without numba.

They cross from Python into compiled code as plain tuples: numba recognizes the types of a plain tuple in half the time
that a named tuple takes (2 against 4 microseconds, where a query takes 30). The kernel restores the names.
"""

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "BLOCKS_RANKED",
    "BLOCKS_SKIPPED",
    "DAMAGED",
    "DONE",
    "ENTRIES_NEEDED",
    "ENTRY",
    "HITS",
    "LARGEST_BOUND",
    "MATCHED",
    "NEXT_BLOCK",
    "PAUSED",
    "POSTINGS_READ",
    "PROGRESS_PLACES",
    "TOO_SMALL",
    "KernelQuery",
    "PostingArrays",
    "ScanMemory",
]

# Results of match_shard.
DONE, PAUSED, DAMAGED, TOO_SMALL = 0, 1, -1, -2

# Places of the int64 array ``progress``, which is all zeros for a new query.
NEXT_BLOCK = 0  # ranked blocks that were scanned or skipped
BLOCKS_RANKED = 1  # blocks that can hold a match; 0: bounds are still to be computed
HITS = 2  # hits in the heap
MATCHED = 3  # scanned documents that match
POSTINGS_READ = 4
BLOCKS_SKIPPED = 5  # 1 if a block was skipped because none of its documents can be a hit
LARGEST_BOUND = 6  # bits of the largest bound, a float32
ENTRIES_NEEDED = 7  # with TOO_SMALL: entries that the query needs
PROGRESS_PLACES = 8

# One run of a query term: the next run in the same block (-1: the last one), where its items begin in ids and in
# impacts (in a compressed run of one posting: the impact itself), its postings less 1, and the position of the query
# term.
ENTRY = np.dtype([("next", "<i4"), ("ids", "<u4"), ("impacts", "<u4"), ("count", "<u2"), ("term", "<u2")])


class PostingArrays(NamedTuple):
    """Postings of one shard; see ``formats.shard`` for the arrays.

    Attributes:
        compressed: whether ids may be bitmaps, and runs of one posting have no item in ``impacts``.
        block_size: documents per block.
    """

    term_runs: Any
    term_postings: Any
    run_gaps: Any
    run_counts: Any
    run_maxima: Any
    term_ids: Any
    term_impacts: Any
    ids: Any
    impacts: Any
    id_rank: Any
    compressed: Any
    block_size: Any


class KernelQuery(NamedTuple):
    """One query.

    Attributes:
        ids: int32 [q], distinct terms of the postings.
        weights: float32 [q], score per impact unit.
        counted: uint8 [q], 1 if the term counts towards ``required``.
        required: counted terms that a match must share, 1 or more.
        floor: lowest score of a hit.
        exhaustive: read every block that can hold a match, so that all matches are counted.
    """

    ids: Any
    weights: Any
    counted: Any
    required: Any
    floor: Any
    exhaustive: Any


class ScanMemory(NamedTuple):
    """Arrays that the kernel writes.

    Attributes:
        bounds: float32 [blocks], upper bounds of the scores in each block.
        terms_present: uint16 [blocks], counted query terms that occur in each block.
        first_entries: int32 [blocks], first entry of each block, -1 if there is none.
        order: int32 [blocks], ranked blocks, the one with the highest bound first.
        entries: ``ENTRY``, one per run of the query's terms.
        scores: float32 [256 or 65,536], zeros before and after a query.
        score_bits: the same memory as int32.
        counts: uint16 [256 or 65,536], shared terms, zeros before and after a query.
        top_scores: float32 [k or more], out: scores of the hits.
        top_documents: int64 [k or more], out: their ordinals.
        top_counts: uint16 [k or more], out: their shared terms.
    """

    bounds: Any
    terms_present: Any
    first_entries: Any
    order: Any
    entries: Any
    scores: Any
    score_bits: Any
    counts: Any
    top_scores: Any
    top_documents: Any
    top_counts: Any
