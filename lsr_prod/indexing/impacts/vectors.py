"""Sparse vectors of a shard, between the sparse table and the arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.impacts.arrays import GrowingArray, create_array, map_array
from lsr_prod.search.kernels import native
from lsr_prod.storage.formats.shard import MAX_ITEMS, WINDOW, array_name, term_dtype
from lsr_prod.storage.formats.sparse import put_together

_ALL_TERMS = 1 << 31


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of documents as rows of a CSR matrix, heaviest term first."""

    offsets: npt.NDArray[np.uint32]  # uint32 [n + 1]
    terms: npt.NDArray[Any]  # uint16 or int32 [nnz]
    impacts: npt.NDArray[np.uint8]  # uint8 [nnz]

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of terms of each document, int64 [n]."""
        offsets: npt.NDArray[np.int64] = self.offsets.astype(np.int64)
        return np.diff(offsets)

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
        # Equal impacts keep the order of the encoder, which is that of the weights. One sort of numbers, which takes a
        # tenth of the time of a sort by several keys.
        keys = documents << 40 | (255 - impacts.astype(np.int64)) << 32 | np.arange(len(terms))
        order = np.sort(keys) & (1 << 32) - 1
        ids = terms[order].astype(term_dtype(vocabulary_size))
        return cls(offsets.astype(np.uint32), ids, impacts[order].astype(np.uint8))

    def take(self, order: npt.NDArray[Any]) -> "Vectors":
        """Return the rows with the numbers ``order``, in that order."""
        starts = self.offsets[order].astype(np.int64)
        offsets, places = put_together(starts, self.offsets[order + np.int64(1)] - starts)
        return Vectors(offsets.astype(np.uint32), self.terms[places], self.impacts[places])

    def top(self, dk: int) -> "Vectors":
        """Return the vectors with at most the ``dk`` heaviest terms each."""
        lengths = np.minimum(self.lengths, dk)
        if np.array_equal(lengths, self.lengths):
            return self
        offsets, places = put_together(self.offsets[:-1].astype(np.int64), lengths)
        return Vectors(offsets.astype(np.uint32), self.terms[places], self.impacts[places])


class VectorSpill:
    """Vectors written to files as they arrive and mapped at the end; ``prefix`` begins the names of the files."""

    def __init__(self, folder: Path, vocabulary_size: int, prefix: str = "") -> None:
        self._offsets = GrowingArray(folder / f"{prefix}offsets.npy", np.dtype("<u4"), first=0)
        self._terms = GrowingArray(folder / f"{prefix}terms.npy", term_dtype(vocabulary_size))
        self._impacts = GrowingArray(folder / f"{prefix}impacts.npy", np.dtype("u1"))

    def add(self, vectors: Vectors) -> None:
        """Append vectors."""
        if self._terms.length + len(vectors.terms) > MAX_ITEMS:
            raise ValueError(f"a shard cannot hold more than {MAX_ITEMS} terms; set index.shards to a larger number")
        self._offsets.append(self._terms.length + vectors.offsets[1:].astype(np.int64))
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


def _check_distinct(documents: npt.NDArray[np.int64], terms: npt.NDArray[Any]) -> None:
    pairs = np.sort(documents << 32 | terms.astype(np.int64))
    if np.any(pairs[1:] == pairs[:-1]):
        raise ArtifactError("a document of the table repeats a term; the table is damaged, encode the corpus again")


@dataclass(frozen=True, slots=True)
class TermField:
    """Terms of one kind: those of the output vocabulary, or the words of the text fields."""

    vectors: Vectors  # vectors of the documents, by ordinal
    size: int  # number of ids; the ids of the next field follow them
    most: int = _ALL_TERMS  # heaviest terms of a document that become postings


def write_postings(folder: Path, fields: Sequence[TermField]) -> None:
    """Write the posting arrays of a shard.

    The first pass over the vectors counts runs and postings of every term; the others write each run and each posting
    to its position in the mapped files. Memory use is a few integers per term.
    """

    def make(name: str, dtype: str, length: int) -> Any:
        return create_array(folder / array_name(name), np.dtype(dtype), length)

    if len(fields[0].vectors) > WINDOW << 16:
        raise ValueError(f"a shard cannot hold {len(fields[0].vectors)} documents; set index.shards to a larger number")
    ends = np.cumsum([field.size for field in fields]).tolist()
    terms = ends[-1]
    runs, postings, ids = (np.zeros(terms + 1, np.int64) for _ in range(3))
    for field, end in zip(fields, ends, strict=True):
        mine, rows = slice(1 + end - field.size, 1 + end), field.vectors
        native.count_runs(rows.offsets, rows.terms, field.most, runs[mine], postings[mine], ids[mine])
    starts = []
    for name, counts in (("term_runs", runs), ("term_postings", postings), ("term_ids", ids)):
        np.cumsum(counts, out=counts)
        if counts[-1] > MAX_ITEMS:
            raise ValueError(f"a shard cannot hold {counts[-1]} postings; set index.shards to a larger number")
        starts.append(make(name, "<u4", terms + 1))
        starts[-1][:] = counts
    by_run = [make(name, "<u2", int(runs[-1])) for name in ("run_windows", "run_counts")]
    by_posting = [make("ids", "<u2", int(ids[-1])), make("impacts", "u1", int(postings[-1]))]
    for field, end in zip(fields, ends, strict=True):
        mine, rows = slice(end - field.size, end), field.vectors
        native.fill_postings(
            rows.offsets,
            rows.terms,
            rows.impacts,
            field.most,
            runs[mine],
            postings[mine],
            ids[mine],
            *by_run,
            *by_posting,
        )
    ranked = [make(name, "u1", terms) for name in ("term_tenths", "term_hundredths")]
    native.rank_impacts(starts[1], by_posting[1], *ranked)
