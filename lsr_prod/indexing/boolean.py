"""Write the Tantivy index of a shard: text and attributes, for Boolean queries and the lexical baseline."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import pyarrow as pa
import tantivy

from lsr_prod.formats.index import AttributeType, attribute_column
from lsr_prod.formats.shard import ORDINAL_FIELD, TANTIVY_FOLDER, TEXT_FIELD
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


def segment_documents(documents: int, text_bytes: int) -> int:
    """Return the number of documents per segment: so many that Tantivy needs about 64 MiB of memory for a segment."""
    # Measured with Tantivy 0.27.
    memory = 100 * documents + 3 * text_bytes // 2
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
        attributes: Mapping[str, AttributeType] = MappingProxyType({}),
        *,
        segment_documents: int | None = None,
    ) -> None:
        """Create the index; ``segment_documents`` follows the first texts if it is None."""
        (shard / TANTIVY_FOLDER).mkdir()
        self._attributes = attributes
        schema = tantivy.SchemaBuilder()
        schema.add_unsigned_field(ORDINAL_FIELD, fast=True)
        schema.add_text_field(TEXT_FIELD, tokenizer_name="en_stem", index_option="freq")
        for name, kind in attributes.items():
            _add_field(schema, attribute_column(name), kind)
        self._folder, self._schema = shard / TANTIVY_FOLDER, schema.build()
        self._writer = None if segment_documents is None else self._begin(segment_documents)
        self._documents = 0
        self.seconds = 0.0

    def add(self, texts: Sequence[str], columns: Sequence[pa.Array] = ()) -> None:
        """Append the next documents."""
        began = time.perf_counter()
        writer = self._writer
        if writer is None:
            writer = self._writer = self._begin(segment_documents(len(texts), sum(map(len, texts))))
        for text, values in zip(texts, self._values(columns, len(texts)), strict=True):
            document = tantivy.Document()
            # Keyword arguments of the constructor would create signed integers, and an unsigned field panics on them.
            document.add_unsigned(ORDINAL_FIELD, self._documents)
            if text:
                document.add_text(TEXT_FIELD, text)
            for add, name, value in values:
                add(document, name, value)
            writer.add(document)
            self._documents += 1
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

    def _begin(self, documents: int) -> SegmentWriter:
        return SegmentWriter(self._folder, self._schema, documents)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        start = time.perf_counter()
        writer = self._begin(_DOCUMENTS[0]) if self._writer is None else self._writer
        if error is None:
            writer.finish()
        else:
            writer.abandon()
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
