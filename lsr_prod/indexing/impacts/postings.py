"""Invert document-ordered vectors into term-ordered postings; see ``formats.shard`` for the layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lsr_prod.compiled import compiled
from lsr_prod.formats.shard import NO_RUN, array_name, local_dtype
from lsr_prod.indexing.impacts.arrays import create_array
from lsr_prod.indexing.impacts.vectors import Vectors

__all__ = ["TermField", "write_postings"]

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

    Args:
        folder: the shard.
        fields: fields; term ids of a field follow those of the field before.
        block_size: documents per block.
    """

    def make(name: str, dtype: Any, length: int) -> Any:
        return create_array(folder / array_name(name), np.dtype(dtype), length)

    ends = np.cumsum([field.size for field in fields]).tolist()
    terms = ends[-1]
    runs, postings = np.zeros(terms + 1, np.int64), np.zeros(terms + 1, np.int64)
    for field, end in zip(fields, ends, strict=True):
        mine, dk = slice(1 + end - field.size, 1 + end), _ALL_TERMS if field.dk is None else field.dk
        _count(field.vectors.offsets, field.vectors.terms, dk, block_size, runs[mine], postings[mine])
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
        _fill(rows.offsets, rows.terms, rows.impacts, dk, block_size, runs[mine], postings[mine], *by_run, *by_posting)


@compiled
def _count(offsets: Any, terms: Any, dk: int, block_size: int, runs: Any, postings: Any) -> None:
    last_block = np.full(len(runs), -1, np.int64)
    for document in range(len(offsets) - 1):
        block = document // block_size
        for at in range(offsets[document], min(offsets[document + 1], offsets[document] + dk)):
            term = terms[at]
            postings[term] += 1
            if last_block[term] != block:
                runs[term] += (block - last_block[term]) // NO_RUN + 1
                last_block[term] = block


@compiled
def _fill(
    offsets: Any,
    terms: Any,
    impacts: Any,
    dk: int,
    block_size: int,
    next_run: Any,
    next_posting: Any,
    run_gaps: Any,
    run_counts: Any,
    run_maxima: Any,
    ids: Any,
    posting_impacts: Any,
) -> None:
    last_block = np.full(len(next_run), -1, np.int64)
    for document in range(len(offsets) - 1):
        block = document // block_size
        for at in range(offsets[document], min(offsets[document + 1], offsets[document] + dk)):
            term = terms[at]
            if last_block[term] != block:
                gap = block - last_block[term]
                last_block[term] = block
                while gap >= NO_RUN:
                    run_gaps[next_run[term]] = NO_RUN
                    next_run[term] += 1
                    gap -= NO_RUN
                run_gaps[next_run[term]] = gap
                next_run[term] += 1
            else:
                run_counts[next_run[term] - 1] += 1
            run = next_run[term] - 1
            run_maxima[run] = max(run_maxima[run], impacts[at])
            ids[next_posting[term]] = document - block * block_size
            posting_impacts[next_posting[term]] = impacts[at]
            next_posting[term] += 1
