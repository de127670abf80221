"""Compress postings: long runs become bitmaps, and the impact of a run of one posting is stored only as its bound."""

from pathlib import Path
from typing import Any

import numpy as np

from lsr_prod.compiled import compiled
from lsr_prod.formats.shard import BITMAP_ABOVE, NO_RUN, array_name
from lsr_prod.indexing.impacts.arrays import create_array, map_array

__all__ = ["compress_postings"]


def compress_postings(folder: Path) -> None:
    """Replace the arrays ``ids`` and ``impacts`` of a shard with their compressed form; see ``formats.shard``.

    Args:
        folder: folder of a shard from ``write_postings``, with at most 256 documents per block.
    """

    def load(name: str) -> Any:
        return map_array(folder / array_name(name))

    term_runs, term_postings = load("term_runs"), load("term_postings")
    gaps, run_counts, ids, impacts = load("run_gaps"), load("run_counts"), load("ids"), load("impacts")
    id_starts, impact_starts = np.zeros(len(term_runs), np.int64), np.zeros(len(term_runs), np.int64)
    _measure(term_runs, gaps, run_counts, id_starts, impact_starts)
    for name, starts in (("term_ids", id_starts), ("term_impacts", impact_starts)):
        create_array(folder / array_name(name), np.dtype("<i8"), len(starts))[:] = starts
    drafts = [
        create_array(folder / array_name(f"compressed_{name}"), np.dtype("u1"), int(starts[-1]))
        for name, starts in (("ids", id_starts), ("impacts", impact_starts))
    ]
    _compress(term_runs, term_postings, gaps, run_counts, ids, impacts, *drafts)
    for name in ("ids", "impacts"):
        (folder / array_name(f"compressed_{name}")).replace(folder / array_name(name))


@compiled
def _measure(term_runs: Any, gaps: Any, run_counts: Any, id_starts: Any, impact_starts: Any) -> None:
    """Compute where the compressed ids and impacts of each term begin."""
    for term in range(len(term_runs) - 1):
        id_at, impact_at = id_starts[term], impact_starts[term]
        for run in range(np.int64(term_runs[term]), np.int64(term_runs[term + 1])):
            if gaps[run] == NO_RUN:
                continue
            count = np.int64(run_counts[run]) + 1
            id_at += BITMAP_ABOVE if count > BITMAP_ABOVE else count
            impact_at += 0 if count == 1 else count
        id_starts[term + 1], impact_starts[term + 1] = id_at, impact_at


@compiled
def _compress(
    term_runs: Any,
    term_postings: Any,
    gaps: Any,
    run_counts: Any,
    ids: Any,
    impacts: Any,
    packed_ids: Any,
    packed_impacts: Any,
) -> None:
    id_at, impact_at = 0, 0
    for term in range(len(term_runs) - 1):
        posting = np.int64(term_postings[term])
        for run in range(np.int64(term_runs[term]), np.int64(term_runs[term + 1])):
            if gaps[run] == NO_RUN:
                continue
            count = np.int64(run_counts[run]) + 1
            if count > BITMAP_ABOVE:
                for at in range(posting, posting + count):
                    packed_ids[id_at + (ids[at] >> 3)] |= np.uint8(1 << (ids[at] & 7))
                id_at += BITMAP_ABOVE
            else:
                for at in range(posting, posting + count):
                    packed_ids[id_at] = ids[at]
                    id_at += 1
            if count > 1:
                for at in range(posting, posting + count):
                    packed_impacts[impact_at] = impacts[at]
                    impact_at += 1
            posting += count
