"""Write the Tantivy index of a shard: its text, for words of filters and the lexical baseline."""

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import tantivy

from lsr_prod.indexing.segments import SegmentWriter, tokenizer_name
from lsr_prod.inference.terms.analysis import prepare
from lsr_prod.storage.formats.index import Analyzer
from lsr_prod.storage.formats.shard import ORDINAL_FIELD, TANTIVY_FOLDER, TEXT_FIELD

_SEGMENT_BYTES = 64 << 20  # memory of Tantivy for an average segment
_DOCUMENTS = (64, 1 << 20)  # smallest and largest number of documents of a segment before merges


def segment_documents(documents: int, text_bytes: int) -> int:
    """Return the number of documents per segment: so many that Tantivy needs about 64 MiB of memory for a segment."""
    # Measured with Tantivy 0.27.
    memory = 100 * documents + 3 * text_bytes // 2
    return sorted((*_DOCUMENTS, _SEGMENT_BYTES * documents // max(1, memory)))[1]


class BooleanWriter:
    """Writer of the Tantivy index of one shard; a context manager that commits unless an error was raised.

    Attributes:
        seconds: time spent so far.
    """

    def __init__(self, shard: Path, analyzer: Analyzer = "english", *, segment_documents: int | None = None) -> None:
        """Create the index; ``segment_documents`` follows the first texts if it is None."""
        self._analyzer: Analyzer = analyzer
        (shard / TANTIVY_FOLDER).mkdir()
        schema = tantivy.SchemaBuilder()
        schema.add_unsigned_field(ORDINAL_FIELD, fast=True)
        schema.add_text_field(TEXT_FIELD, tokenizer_name=tokenizer_name(analyzer), index_option="freq")
        self._folder, self._schema = shard / TANTIVY_FOLDER, schema.build()
        self._writer = None if segment_documents is None else self._begin(segment_documents)
        self._documents = 0
        self.seconds = 0.0

    def add(self, texts: Sequence[str]) -> None:
        """Append the next documents."""
        began = time.perf_counter()
        writer = self._writer
        if writer is None:
            writer = self._writer = self._begin(segment_documents(len(texts), sum(map(len, texts))))
        for text in texts:
            document = tantivy.Document()
            # Keyword arguments of the constructor would create signed integers, and an unsigned field panics on them.
            document.add_unsigned(ORDINAL_FIELD, self._documents)
            if text:
                document.add_text(TEXT_FIELD, prepare(text, self._analyzer))
            writer.add(document)
            self._documents += 1
        self.seconds += time.perf_counter() - began

    def _begin(self, documents: int) -> SegmentWriter:
        return SegmentWriter(self._folder, self._schema, documents, self._analyzer)

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
