"""Write the Tantivy index of a shard: terms and attributes for Boolean filters, and text for the lexical baseline."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import pyarrow as pa
import tantivy

from lsr_prod.formats.index import AttributeType, attribute_column
from lsr_prod.formats.shard import ORDINAL_FIELD, TANTIVY_FOLDER, TERMS_FIELD, TEXT_FIELD
from lsr_prod.indexing.impacts.bm25 import joined_texts
from lsr_prod.indexing.impacts.vectors import Vectors
from lsr_prod.indexing.segments import SegmentWriter

_SEGMENT_BYTES = 64 << 20  # memory of Tantivy for an average segment
_DOCUMENTS = (64, 1 << 20)  # smallest and largest number of documents of a segment before merges
_ADD: dict[AttributeType, Any] = {
    "string": tantivy.Document.add_text,
    "int64": tantivy.Document.add_integer,
    "float64": tantivy.Document.add_float,
    "bool": tantivy.Document.add_boolean,
    "timestamp": tantivy.Document.add_integer,
}


def segment_documents(documents: int, postings: int, text_bytes: int) -> int:
    """Return the number of documents per segment: so many that Tantivy needs about 64 MiB of memory for a segment."""
    # Measured with Tantivy 0.27: 1 kB per document with 60 terms and 60 words of 6 letters.
    memory = 100 * documents + 8 * postings + 3 * text_bytes // 2
    return sorted((*_DOCUMENTS, _SEGMENT_BYTES * documents // max(1, memory)))[1]


class BooleanWriter:
    """Writer of the Tantivy index of one shard; a context manager that commits unless an error was raised.

    An attribute becomes an indexed fast field. Strings are indexed without tokenization. Timestamps are stored as
    microseconds since 1970, since dates of Tantivy have a resolution of one second.

    Attributes:
        seconds: time spent so far.
    """

    def __init__(
        self,
        shard: Path,
        text_fields: Sequence[str],
        attributes: Mapping[str, AttributeType] = MappingProxyType({}),
        *,
        segment_documents: int = _DOCUMENTS[1],
    ) -> None:
        (shard / TANTIVY_FOLDER).mkdir()
        self._text_fields = text_fields
        self._attributes = attributes
        schema = tantivy.SchemaBuilder()
        schema.add_unsigned_field(TERMS_FIELD, indexed=True)
        schema.add_unsigned_field(ORDINAL_FIELD, fast=True)
        schema.add_text_field(TEXT_FIELD, tokenizer_name="en_stem", index_option="freq")
        for name, kind in attributes.items():
            _add_field(schema, attribute_column(name), kind)
        self._writer = SegmentWriter(shard / TANTIVY_FOLDER, schema.build(), segment_documents)
        self._documents = 0
        self.seconds = 0.0

    def add(self, kept: Vectors, rows: pa.Table, columns: Sequence[pa.Array] = ()) -> None:
        """Append the next documents."""
        began = time.perf_counter()
        attributes = self._values(columns, rows.num_rows)
        terms = kept.terms.tolist()
        start = 0
        for length, text, values in zip(
            kept.lengths.tolist(), joined_texts(rows, self._text_fields), attributes, strict=True
        ):
            document = tantivy.Document()
            # Keyword arguments of the constructor would create signed integers, and an unsigned field panics on them.
            document.add_unsigned(ORDINAL_FIELD, self._documents)
            for term in terms[start : start + length]:
                document.add_unsigned(TERMS_FIELD, term)
            if text:
                document.add_text(TEXT_FIELD, text)
            for add, name, value in values:
                add(document, name, value)
            self._writer.add(document)
            self._documents += 1
            start += length
        self.seconds += time.perf_counter() - began

    def _values(self, columns: Sequence[pa.Array], rows: int) -> list[list[tuple[Any, str, Any]]]:
        """Return for each row the method that adds a value, the name of the field and the value."""
        values: list[list[tuple[Any, str, Any]]] = [[] for _ in range(rows)]
        for (name, kind), column in zip(self._attributes.items(), columns, strict=True):
            plain = column.cast(pa.int64()) if kind == "timestamp" else column
            for found, value in zip(values, plain.to_pylist(), strict=True):
                if value is not None:
                    found.append((_ADD[kind], attribute_column(name), value))
        return values

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        start = time.perf_counter()
        if error is None:
            self._writer.finish()
        else:
            self._writer.abandon()
        self.seconds += time.perf_counter() - start


def _add_field(schema: Any, name: str, kind: AttributeType) -> None:
    match kind:
        case "string":
            schema.add_text_field(name, fast=True, tokenizer_name="raw", index_option="basic")
        case "float64":
            schema.add_float_field(name, indexed=True, fast=True)
        case "bool":
            schema.add_boolean_field(name, indexed=True, fast=True)
        case "int64" | "timestamp":
            schema.add_integer_field(name, indexed=True, fast=True)
