"""Sparse vectors of a shard, between the sparse table and the arrays.

Order the documents of a shard so that similar ones are close and a term occurs in few document blocks.

Recursive graph bisection (Dhulipala et al., KDD 2016, "Compressing Graphs and Indexes with Recursive Graph Bisection"):
a set of documents is split into halves, and pairs of documents are exchanged while that lowers the estimated size of
the gaps between postings, the sum over terms of deg * log2(n / (deg + 1)) over both halves; then each half is split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.shard import array_name, local_dtype, term_dtype
from lsr_prod.formats.sparse import put_together
from lsr_prod.indexing.impacts.arrays import GrowingArray, create_array, map_array
from lsr_prod.search.kernels import native

_TERMS = 8  # heaviest terms of a document that decide its place
_ALL_TERMS = 1 << 31


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of documents as rows of a CSR matrix, heaviest term first."""

    offsets: npt.NDArray[np.int64]  # int64 [n + 1]
    terms: npt.NDArray[Any]  # uint16 or int32 [nnz]
    impacts: npt.NDArray[np.uint8]  # uint8 [nnz]

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of terms of each document, int64 [n]."""
        return np.diff(self.offsets)

    @classmethod
    def from_rows(cls, rows: pa.Table, vocabulary_size: int) -> "Vectors":
        """Convert and check the columns ``terms`` and ``impacts``."""
        terms_column, impacts_column = rows["terms"].combine_chunks(), rows["impacts"].combine_chunks()
        offsets = terms_column.offsets.to_numpy().astype(np.int64)
        offsets -= offsets[0] if len(offsets) else 0
        lengths = np.diff(offsets)
        terms = terms_column.flatten().to_numpy()
        impacts = impacts_column.flatten().to_numpy()
        if not np.array_equal(lengths, np.diff(impacts_column.offsets.to_numpy())):
            raise ArtifactError("a document has not as many impacts as terms; encode the corpus again")
        if len(terms) and (
            terms.min() < 0 or terms.max() >= vocabulary_size or impacts.min() < 1 or impacts.max() > 255
        ):
            raise ArtifactError("the table has terms or impacts out of range; it is damaged, encode the corpus again")
        documents = np.repeat(np.arange(len(lengths)), lengths)
        _check_distinct(documents, terms)
        # The sort is stable: equal impacts keep the order of the encoder, which is that of the weights.
        order = np.lexsort((-impacts.astype(np.int32), documents))
        return cls(offsets, terms[order].astype(term_dtype(vocabulary_size)), impacts[order].astype(np.uint8))

    def take(self, order: npt.NDArray[Any]) -> "Vectors":
        """Return the rows with the numbers ``order``, in that order."""
        starts = self.offsets[order]
        offsets, places = put_together(starts, self.offsets[order + np.int64(1)] - starts)
        return Vectors(offsets, self.terms[places], self.impacts[places])

    def top(self, dk: int) -> "Vectors":
        """Return the vectors with at most the ``dk`` heaviest terms each."""
        lengths = np.minimum(self.lengths, dk)
        if np.array_equal(lengths, self.lengths):
            return self
        offsets, places = put_together(self.offsets[:-1], lengths)
        return Vectors(offsets, self.terms[places], self.impacts[places])


class VectorSpill:
    """Vectors written to files as they arrive and mapped at the end; ``prefix`` begins the names of the files."""

    def __init__(self, folder: Path, vocabulary_size: int, prefix: str = "") -> None:
        self._offsets = GrowingArray(folder / f"{prefix}offsets.npy", np.dtype("<i8"), first=0)
        self._terms = GrowingArray(folder / f"{prefix}terms.npy", term_dtype(vocabulary_size))
        self._impacts = GrowingArray(folder / f"{prefix}impacts.npy", np.dtype("u1"))

    def add(self, vectors: Vectors) -> None:
        """Append vectors."""
        self._offsets.append(self._terms.length + vectors.offsets[1:])
        self._terms.append(vectors.terms)
        self._impacts.append(vectors.impacts)

    def finish(self) -> Vectors:
        """Return all vectors, mapped."""
        arrays = []
        for array in (self._offsets, self._terms, self._impacts):
            with array:
                pass
            arrays.append(map_array(array.path))
        return Vectors(*arrays)


def _check_distinct(documents: npt.NDArray[Any], terms: npt.NDArray[Any]) -> None:
    order = np.lexsort((terms, documents))
    documents, terms = documents[order], terms[order]
    if np.any((documents[1:] == documents[:-1]) & (terms[1:] == terms[:-1])):
        raise ArtifactError("a document of the table repeats a term; the table is damaged, encode the corpus again")


def order_documents(vectors: Vectors, vocabulary_size: int, block_size: int) -> npt.NDArray[Any]:
    """Return an order in which documents with common terms are close; equal vectors give an equal order.

    Returns:
        uint32 [N]: number of the document at each position.
    """
    count = len(vectors)
    rows = vectors.top(_TERMS)
    order = np.arange(count, dtype=np.uint32)
    bounds = np.array([0, count], np.int64)
    logs = np.log2(np.maximum(np.arange(count + 4), 1)).astype(np.float32)
    while (np.diff(bounds) > block_size).any():
        places = np.arange(count, dtype=np.int64)
        cuts = _cuts(bounds, block_size)
        native.bisect_sets(places, bounds, cuts, 0, len(cuts), rows.offsets, rows.terms, vocabulary_size, logs)
        order = order[places]
        rows = rows.take(places)
        bounds = np.unique(np.concatenate([bounds, cuts]))
    return order


def _cuts(bounds: npt.NDArray[np.int64], block_size: int) -> npt.NDArray[np.int64]:
    """Return the split point of each set: the multiple of ``block_size`` after its middle, if it is inside the set."""
    first, last = bounds[:-1], bounds[1:]
    blocks = -(-(last - first) // block_size)
    return np.minimum(last, first + (blocks + 1) // 2 * block_size)


@dataclass(frozen=True, slots=True)
class TermField:
    """Terms of one kind: those of the output vocabulary, or the words of the text fields."""

    vectors: Vectors  # vectors of the documents, by ordinal
    size: int  # number of ids; the ids of the next field follow them
    dk: int | None = None  # heaviest terms of a document that become postings; None takes all


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
