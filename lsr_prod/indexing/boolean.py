"""The Tantivy index of a shard: which document holds which term, and the text for BM25."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import tantivy

from lsr_prod.formats.shard import ORDINAL_FIELD, TANTIVY_FOLDER, TERMS_FIELD, TEXT_FIELD
from lsr_prod.indexing.vectors import Vectors

__all__ = ["BooleanWriter"]

_HEAP = 128 << 20  # bytes; Tantivy starts a new segment when it is full


class BooleanWriter:
    """Writes the Tantivy index of one shard; a context manager that commits when no error passed through it.

    Attributes:
        seconds: spent on it so far.
    """

    def __init__(self, shard: Path, text_fields: Sequence[str]) -> None:
        self._folder = shard / TANTIVY_FOLDER
        self._folder.mkdir()
        self._text_fields = text_fields
        schema = tantivy.SchemaBuilder()
        schema.add_unsigned_field(TERMS_FIELD, indexed=True)
        schema.add_unsigned_field(ORDINAL_FIELD, fast=True)
        schema.add_text_field(TEXT_FIELD, tokenizer_name="en_stem", index_option="freq")
        # One thread: documents keep their order inside a segment, so that equal scores rank by doc_id.
        self._writer = tantivy.Index(schema.build(), path=str(self._folder)).writer(heap_size=_HEAP, num_threads=1)
        self._documents = 0
        self.seconds = 0.0

    def add(self, kept: Vectors, rows: pa.Table) -> None:
        """Append the next block: what entered the postings, and the rows with the text fields."""
        began = time.perf_counter()
        terms = kept.terms.tolist()
        start = 0
        for length, text in zip(kept.lengths.tolist(), self._texts(rows), strict=True):
            document = tantivy.Document()
            # The constructor's keywords would make signed integers, on which an unsigned field panics.
            document.add_unsigned(ORDINAL_FIELD, self._documents)
            for term in terms[start : start + length]:
                document.add_unsigned(TERMS_FIELD, term)
            if text:
                document.add_text(TEXT_FIELD, text)
            self._writer.add_document(document)
            self._documents += 1
            start += length
        self.seconds += time.perf_counter() - began

    def _texts(self, rows: pa.Table) -> list[str]:
        columns = [rows[name].to_pylist() for name in self._text_fields]
        if not columns:
            return [""] * rows.num_rows
        return [" ".join(part for part in parts if part) for parts in zip(*columns, strict=True)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        start = time.perf_counter()
        if error is None:
            self._writer.commit()
        self._writer.wait_merging_threads()
        for lock in self._folder.glob(".tantivy-*.lock"):
            lock.unlink()
        self.seconds += time.perf_counter() - start
