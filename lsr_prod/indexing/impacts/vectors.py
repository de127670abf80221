"""Sparse vectors of a shard, between the sparse table and the arrays."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.shard import term_dtype
from lsr_prod.indexing.impacts.arrays import GrowingArray


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of documents as rows of a CSR matrix, heaviest term first.

    Attributes:
        offsets: int64 [n + 1].
        terms: uint16 or int32 [nnz].
        impacts: uint8 [nnz].
    """

    offsets: npt.NDArray[np.int64]
    terms: npt.NDArray[Any]
    impacts: npt.NDArray[np.uint8]

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
        lengths = self.offsets[order + np.int64(1)] - self.offsets[order]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[order] - offsets[:-1], lengths)
        return Vectors(offsets, self.terms[places], self.impacts[places])

    def top(self, dk: int) -> "Vectors":
        """Return the vectors with at most the ``dk`` heaviest terms each."""
        lengths = np.minimum(self.lengths, dk)
        if np.array_equal(lengths, self.lengths):
            return self
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1] - offsets[:-1], lengths)
        return Vectors(offsets, self.terms[places], self.impacts[places])


class VectorSpill:
    """Vectors written to files as they arrive and mapped at the end."""

    def __init__(self, folder: Path, vocabulary_size: int) -> None:
        self._offsets = GrowingArray(folder / "offsets.npy", np.dtype("<i8"), first=0)
        self._terms = GrowingArray(folder / "terms.npy", term_dtype(vocabulary_size))
        self._impacts = GrowingArray(folder / "impacts.npy", np.dtype("u1"))

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
            mapped = np.load(array.path, mmap_mode="r" if array.length else None, allow_pickle=False)
            arrays.append(np.asarray(mapped))
        return Vectors(*arrays)


def _check_distinct(documents: npt.NDArray[Any], terms: npt.NDArray[Any]) -> None:
    order = np.lexsort((terms, documents))
    documents, terms = documents[order], terms[order]
    if np.any((documents[1:] == documents[:-1]) & (terms[1:] == terms[:-1])):
        raise ArtifactError("a document of the table repeats a term; the table is damaged, encode the corpus again")
