"""Sparse vectors of a shard, between the sparse table and the arrays, and the ``.npy`` files of both."""

import io
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa

from lsr_prod.errors import ArtifactError
from lsr_prod.storage.formats import pages, sparse
from lsr_prod.storage.formats.shard_format import MAX_ITEMS, term_dtype


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of documents as rows of a CSR matrix, heaviest term first."""

    offsets: np.typing.NDArray[np.uint32]  # uint32 [n + 1]
    terms: np.typing.NDArray[Any]  # uint16 or int32 [nnz]
    impacts: np.typing.NDArray[np.uint8]  # uint8 [nnz]

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.typing.NDArray[np.int64]:
        """Number of terms of each document, int64 [n]."""
        offsets: np.typing.NDArray[np.int64] = self.offsets.astype(np.int64)
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
        pairs = np.sort(documents << 32 | terms.astype(np.int64))
        if np.any(pairs[1:] == pairs[:-1]):
            raise ArtifactError("a document of the table repeats a term; the table is damaged, encode the corpus again")
        # Equal impacts keep the order of the encoder, which is that of the weights. One sort of numbers, which takes a
        # tenth of the time of a sort by several keys.
        keys = documents << 40 | (255 - impacts.astype(np.int64)) << 32 | np.arange(len(terms))
        order = np.sort(keys) & (1 << 32) - 1
        ids = terms[order].astype(term_dtype(vocabulary_size))
        return cls(offsets.astype(np.uint32), ids, impacts[order].astype(np.uint8))

    def take(self, order: np.typing.NDArray[Any]) -> "Vectors":
        """Return the rows with the numbers ``order``, in that order."""
        starts = self.offsets[order].astype(np.int64)
        offsets, places = sparse.put_together(starts, self.offsets[order + np.int64(1)] - starts)
        return Vectors(offsets.astype(np.uint32), self.terms[places], self.impacts[places])

    def top(self, dk: int) -> "Vectors":
        """Return the vectors with at most the ``dk`` heaviest terms each."""
        lengths = np.minimum(self.lengths, dk)
        if np.array_equal(lengths, self.lengths):
            return self
        offsets, places = sparse.put_together(self.offsets[:-1].astype(np.int64), lengths)
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


class GrowingArray:
    """An ``.npy`` file to which items are appended; a context manager that writes the length at the end."""

    def __init__(self, path: Path, dtype: np.dtype[Any], first: int | None = None) -> None:
        """Create the file."""
        self.path = path
        self._file = path.open("xb", buffering=0)  # with a buffer, an array that is given up would fail again later
        weakref.finalize(self, self._file.close)  # of an array that is given up
        self._dtype = dtype
        self.length = 0
        _write(self._file, pages.npy_header(dtype, 0))
        self._data = self._file.tell()
        if first is not None:
            self.append(np.array([first]))

    def append(self, values: np.typing.NDArray[Any]) -> None:
        """Append items."""
        _write(self._file, values.astype(self._dtype, copy=False).tobytes())
        self.length += len(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.seek(0)
            _write(self._file, pages.npy_header(self._dtype, self.length))
            assert self._file.tell() == self._data
            os.fsync(self._file.fileno())


def create_array(path: Path, dtype: np.dtype[Any], length: int) -> np.typing.NDArray[Any]:
    """Create an ``.npy`` file of zeros and map it; writes to the array go to the file.

    The disk has room for the whole file before it is mapped: a write to a page of a map for which there is no room
    would end the process with SIGBUS.
    """
    with path.open("xb", buffering=0) as file:
        _write(file, pages.npy_header(dtype, length))
        if length:
            os.posix_fallocate(file.fileno(), file.tell(), length * dtype.itemsize)
    return map_array(path, "r+")


def map_array(path: Path, mode: Literal["r", "r+"] = "r") -> np.typing.NDArray[Any]:
    """Map an ``.npy`` file; an empty array cannot be mapped, and is made."""
    size = path.stat().st_size
    with path.open("rb") as file:
        dtype, start = pages.parse_npy_header(file.read(pages.HEADER_LIMIT), size)
    return np.asarray(np.memmap(path, dtype, mode, offset=start)) if size > start else np.zeros(0, dtype)


def _write(file: io.FileIO, data: bytes) -> None:
    """Write all bytes to an unbuffered file: the system may write a part of them first."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
