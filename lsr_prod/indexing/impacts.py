"""The impact arrays of a shard, written block by block (layout: ``formats.shard``)."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.errors import ArtefactError
from lsr_prod.formats.shard import array_path, term_dtype
from lsr_prod.indexing.plan import Layout

__all__ = ["ImpactWriter", "Vectors"]


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of one block, heaviest term first.

    Attributes:
        lengths: int64 [n], terms of each document.
        terms: uint16 or int32 [nnz].
        impacts: uint8 [nnz].
    """

    lengths: npt.NDArray[np.int64]
    terms: npt.NDArray[Any]
    impacts: npt.NDArray[np.uint8]

    @classmethod
    def from_rows(cls, rows: pa.Table, vocabulary_size: int) -> "Vectors":
        """Take and check the columns ``terms`` and ``impacts``.

        Raises:
            ArtefactError: a term or impact lies outside its range, or a document repeats a term.
        """
        terms_column, impacts_column = rows["terms"].combine_chunks(), rows["impacts"].combine_chunks()
        lengths = np.diff(terms_column.offsets.to_numpy()).astype(np.int64)
        terms = terms_column.flatten().to_numpy()
        impacts = impacts_column.flatten().to_numpy()
        if not np.array_equal(lengths, np.diff(impacts_column.offsets.to_numpy())):
            raise ArtefactError("a document has not as many impacts as terms; the table is damaged, encode it again")
        if len(terms) and (
            terms.min() < 0 or terms.max() >= vocabulary_size or impacts.min() < 1 or impacts.max() > 255
        ):
            raise ArtefactError("the table has terms or impacts outside their range; it is damaged, encode it again")
        documents = np.repeat(np.arange(len(lengths)), lengths)
        # Stable: the encoder's finer order stands where two impacts are equal.
        order = np.lexsort((-impacts, documents))
        return cls(lengths, terms[order].astype(term_dtype(vocabulary_size)), impacts[order].astype(np.uint8))

    def top(self, dk: int) -> "Vectors":
        """The ``dk`` heaviest terms of every document."""
        first = np.cumsum(self.lengths) - self.lengths
        keep = np.arange(len(self.terms)) - np.repeat(first, self.lengths) < dk
        return Vectors(np.minimum(self.lengths, dk), self.terms[keep], self.impacts[keep])


class ImpactWriter:
    """Writes the arrays of one shard; a context manager.

    Attributes:
        postings: (document, term) pairs written so far.
        seconds: spent on them.
    """

    def __init__(self, shard: Path, layout: Layout) -> None:
        array_path(shard, "").parent.mkdir()
        terms = term_dtype(layout.vocabulary_size)
        self.postings = 0
        self.seconds = 0.0
        self._vocabulary_size = layout.vocabulary_size
        self._dk = layout.dk
        self._directory = _GrowingArray(shard, "directory", np.dtype("<i8"), first=0)
        self._terms = _GrowingArray(shard, "terms", terms)
        self._starts = _GrowingArray(shard, "starts", np.dtype("<u4"))
        self._bases = _GrowingArray(shard, "bases", np.dtype("<i8"), first=0)
        self._ids = _GrowingArray(shard, "ids", np.dtype("<u2"))
        self._impacts = _GrowingArray(shard, "impacts", np.dtype("u1"))
        self._forward_offsets = _GrowingArray(shard, "forward_offsets", np.dtype("<i8"), first=0)
        self._forward_terms = _GrowingArray(shard, "forward_terms", terms)
        self._forward_impacts = _GrowingArray(shard, "forward_impacts", np.dtype("u1"))

    def add(self, rows: pa.Table) -> Vectors:
        """Append the next block of documents.

        Returns:
            What entered the postings: the ``dk`` heaviest terms of each document.

        Raises:
            ArtefactError: the rows break the table's contract.
        """
        start = time.perf_counter()
        block = Vectors.from_rows(rows, self._vocabulary_size)
        kept = block.top(self._dk)
        self._add_forward(block)
        self._add_postings(kept)
        self.postings = self._ids.length
        self.seconds += time.perf_counter() - start
        return kept

    def _add_forward(self, block: Vectors) -> None:
        self._forward_offsets.append(self._forward_terms.length + np.cumsum(block.lengths))
        self._forward_terms.append(block.terms)
        self._forward_impacts.append(block.impacts)

    def _add_postings(self, kept: Vectors) -> None:
        ids = np.repeat(np.arange(len(kept.lengths), dtype=np.uint16), kept.lengths)
        order = np.argsort(kept.terms, kind="stable")  # documents rise inside a term
        by_term, ids = kept.terms[order], ids[order]
        new_term = np.ones(len(by_term), dtype=bool)
        new_term[1:] = by_term[1:] != by_term[:-1]
        if np.any(~new_term[1:] & (ids[1:] == ids[:-1])):
            raise ArtefactError("a document of the table repeats a term; the table is damaged, encode it again")
        starts = np.flatnonzero(new_term)
        self._terms.append(by_term[starts])
        self._starts.append(np.append(starts, len(ids)))
        self._ids.append(ids)
        self._impacts.append(kept.impacts[order])
        self._directory.append(np.array([self._terms.length]))
        self._bases.append(np.array([self._ids.length]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for array in vars(self).values():
            if isinstance(array, _GrowingArray):
                array.close()


class _GrowingArray:
    """An ``.npy`` of one dimension whose length is known at the end only."""

    def __init__(self, shard: Path, name: str, dtype: np.dtype[Any], first: int | None = None) -> None:
        self._file = array_path(shard, name).open("xb")
        self._dtype = dtype
        self.length = 0
        self._write_header()
        self._data = self._file.tell()
        if first is not None:
            self._file.write(np.array([first], dtype).tobytes())
        self._leading = int(first is not None)

    def append(self, values: npt.NDArray[Any]) -> None:
        self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self.length += len(values)

    def close(self) -> None:
        self._file.seek(0)
        self._write_header(self.length + self._leading)
        assert self._file.tell() == self._data, "numpy pads the header, so that every length fits into its place"
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _write_header(self, length: int = 0) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(self._file, header)
