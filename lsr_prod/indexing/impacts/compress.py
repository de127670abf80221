"""Compress postings: long runs become bitmaps, and the impact of a run of one posting is stored only as its bound."""

from pathlib import Path
from typing import Any

import numpy as np

from lsr_prod.formats.shard import array_name
from lsr_prod.indexing.impacts.arrays import create_array, map_array
from lsr_prod.kernels import native


def compress_postings(folder: Path) -> None:
    """Replace the arrays ``ids`` and ``impacts`` of a shard with their compressed form; see ``formats.shard``."""

    def load(name: str) -> Any:
        return map_array(folder / array_name(name))

    term_runs, term_postings = load("term_runs"), load("term_postings")
    gaps, run_counts, ids, impacts = load("run_gaps"), load("run_counts"), load("ids"), load("impacts")
    id_starts, impact_starts = np.zeros(len(term_runs), np.int64), np.zeros(len(term_runs), np.int64)
    native.measure_compressed(term_runs, gaps, run_counts, id_starts, impact_starts)
    for name, starts in (("term_ids", id_starts), ("term_impacts", impact_starts)):
        create_array(folder / array_name(name), np.dtype("<i8"), len(starts))[:] = starts
    drafts = [
        create_array(folder / array_name(f"compressed_{name}"), np.dtype("u1"), int(starts[-1]))
        for name, starts in (("ids", id_starts), ("impacts", impact_starts))
    ]
    native.compress_runs(term_runs, term_postings, gaps, run_counts, ids, impacts, *drafts)
    for name in ("ids", "impacts"):
        (folder / array_name(f"compressed_{name}")).replace(folder / array_name(name))
