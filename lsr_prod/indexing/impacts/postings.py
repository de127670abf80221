"""Invert document-ordered vectors into term-ordered postings; see ``formats.shard`` for the layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lsr_prod.formats.shard import array_name, local_dtype
from lsr_prod.indexing.impacts.arrays import create_array
from lsr_prod.indexing.impacts.vectors import Vectors
from lsr_prod.kernels import native

_ALL_TERMS = 1 << 31


@dataclass(frozen=True, slots=True)
class TermField:
    """Terms of one kind: those of the output vocabulary, or the words of the text fields.

    Attributes:
        vectors: vectors of the documents, by ordinal.
        size: number of ids; the ids of the next field follow them.
        dk: heaviest terms of a document that become postings; None takes all.
    """

    vectors: Vectors
    size: int
    dk: int | None = None


def write_postings(folder: Path, fields: Sequence[TermField], *, block_size: int) -> None:
    """Write the posting arrays of a shard.

    The first pass over the vectors counts runs and postings of every term; the second writes each posting to its
    position in the mapped files. Memory use is a few integers per term.
    """

    def make(name: str, dtype: Any, length: int) -> Any:
        return create_array(folder / array_name(name), np.dtype(dtype), length)

    ends = np.cumsum([field.size for field in fields]).tolist()
    terms = ends[-1]
    runs, postings = np.zeros(terms + 1, np.int64), np.zeros(terms + 1, np.int64)
    for field, end in zip(fields, ends, strict=True):
        mine, dk = slice(1 + end - field.size, 1 + end), _ALL_TERMS if field.dk is None else field.dk
        native.count_runs(field.vectors.offsets, field.vectors.terms, dk, block_size, runs[mine], postings[mine])
    np.cumsum(runs, out=runs)
    np.cumsum(postings, out=postings)
    if max(runs[-1], postings[-1]) >= 1 << 32:
        raise ValueError(
            f"a shard cannot hold {postings[-1]} postings in {runs[-1]} runs; set index.shards to a larger number"
        )
    make("term_runs", "<u4", terms + 1)[:] = runs
    make("term_postings", "<i8", terms + 1)[:] = postings
    local, total = local_dtype(block_size), int(postings[-1])
    by_run = [
        make(name, dtype, int(runs[-1]))
        for name, dtype in (("run_gaps", "u1"), ("run_counts", local), ("run_maxima", "u1"))
    ]
    by_posting = [make("ids", local, total), make("impacts", "u1", total)]
    for field, end in zip(fields, ends, strict=True):
        mine, dk = slice(end - field.size, end), _ALL_TERMS if field.dk is None else field.dk
        rows = field.vectors
        native.fill_postings(
            rows.offsets, rows.terms, rows.impacts, dk, block_size, runs[mine], postings[mine], *by_run, *by_posting
        )
