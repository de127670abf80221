"""Collect the words of a shard's documents for BM25 postings, and estimate the average document length."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lsr_prod.encoding.tables.live_rows import live_batches
from lsr_prod.indexing.impacts.vectors import GrowingArray, Vectors, VectorSpill
from lsr_prod.inference.terms.analysis import words_of
from lsr_prod.storage.formats.index import Analyzer
from lsr_prod.storage.formats.shard import BATCH_ROWS, array_name
from lsr_prod.storage.formats.term_weights import word_impacts

if TYPE_CHECKING:
    from lsr_prod.encoding.tables import Table

_SAMPLE = 20_000  # documents; their mean length has an error of about one percent
_BATCH_DOCUMENTS = 1024  # documents whose words are in memory at once
_BATCH_WORDS = 1 << 20  # words in memory at once; a single document may have more
_WIDE = 1 << 31  # vocabulary size that makes ids int32


def joined_texts(rows: pa.Table | pa.RecordBatch, fields: Sequence[str]) -> list[str]:
    """Return one text per row: its fields separated by spaces, or "" if all of them are empty or null."""
    columns = [rows[name].to_pylist() for name in fields]
    if not columns:
        return [""] * rows.num_rows
    return [" ".join(part for part in parts if part) for parts in zip(*columns, strict=True)]


def average_length(
    table: "Table", fields: Sequence[str], analyzer: Analyzer = "english", *, sample: int = _SAMPLE
) -> float:
    """Estimate the average number of words per document from the first buckets of a table.

    Buckets are hashes of document ids, so each one is a random sample. Documents without words are counted.

    Returns:
        Words per document, rounded to 3 decimals; 1 if there are no words.
    """
    documents, words = 0, 0
    for file in sorted(table.files(), key=lambda file: (int(file.partition["bucket"] or 0), file.path)):
        for batch in live_batches(table.store, file, fields, _BATCH_DOCUMENTS):
            words += sum(len(words_of(text, analyzer)) for text in joined_texts(batch, fields))
            documents += batch.num_rows
        if documents >= sample:
            break
    return round(words / documents, 3) if words else 1.0


def average_length_of(texts: Sequence[str], analyzer: Analyzer = "english") -> float:
    """Return the words per document of texts in memory, rounded to 3 decimals; 1 if there are no words."""
    words = sum(len(words_of(text, analyzer)) for text in texts)
    return round(words / len(texts), 3) if words else 1.0


@dataclass(frozen=True, slots=True)
class WordVectors:
    """Words of a shard's documents."""

    names: list[str]  # the T distinct words, sorted
    vectors: Vectors  # vectors of the documents, by ordinal; the id of a word is its position in ``names``


class WordSpill:
    """Words and impacts of documents, written to files as they arrive; only the dictionary is in memory."""

    def __init__(self, folder: Path, average_length: float, analyzer: Analyzer = "english") -> None:
        """Create the files."""
        self._analyzer: Analyzer = analyzer
        self._folder = folder
        self._average_length = average_length
        self._numbers: defaultdict[str, int] = defaultdict()  # of each word, in the order of first occurrence
        self._numbers.default_factory = self._numbers.__len__
        for name in ("numbered", "ranked"):
            (folder / name).mkdir(parents=True)
        self._spill = VectorSpill(folder / "numbered", _WIDE)

    def add(self, texts: Sequence[str]) -> None:
        """Append the texts of documents."""
        lists: list[list[str]] = []
        words = 0
        for text in texts:
            lists.append(words_of(text, self._analyzer))
            words += len(lists[-1])
            if len(lists) == _BATCH_DOCUMENTS or words >= _BATCH_WORDS:  # documents may be long
                self._spill.add(self._count(lists))
                lists, words = [], 0
        if lists:
            self._spill.add(self._count(lists))

    def finish(self) -> WordVectors:
        """Return the words of all documents."""
        vectors = self._spill.finish()
        # The order of code points is the order of the UTF-8 bytes.
        names = sorted(self._numbers)
        ranks = np.empty(len(names), np.int32)
        ranks[[self._numbers[name] for name in names]] = np.arange(len(names), dtype=np.int32)
        ordered = VectorSpill(self._folder / "ranked", _WIDE)
        for start in range(0, len(vectors), BATCH_ROWS):
            some = vectors.take(np.arange(start, min(start + BATCH_ROWS, len(vectors))))
            ordered.add(Vectors(some.offsets, ranks[some.terms], some.impacts))
        return WordVectors(names, ordered.finish())

    def _count(self, lists: list[list[str]]) -> Vectors:
        lengths = np.array(list(map(len, lists)), np.int64)
        words = map(self._numbers.__getitem__, chain.from_iterable(lists))
        numbers = np.fromiter(words, np.int64, count=int(lengths.sum()))
        pairs, counts = np.unique(np.repeat(np.arange(len(lists)), lengths) << 32 | numbers, return_counts=True)
        documents, terms = pairs >> 32, (pairs & (1 << 32) - 1).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(documents, minlength=len(lists)))]).astype(np.int64)
        return Vectors(offsets.astype(np.uint32), terms, word_impacts(counts, lengths[documents], self._average_length))


def write_dictionary(folder: Path, names: Sequence[str]) -> None:
    """Write the sorted words of a shard; see ``formats.shard`` for the layout."""
    with (
        GrowingArray(folder / array_name("word_offsets"), np.dtype("<i8"), first=0) as offsets,
        GrowingArray(folder / array_name("word_bytes"), np.dtype("u1")) as text,
    ):
        for start in range(0, len(names), BATCH_ROWS):
            some = [name.encode() for name in names[start : start + BATCH_ROWS]]
            offsets.append(text.length + np.cumsum(list(map(len, some))))
            text.append(np.frombuffer(b"".join(some), np.uint8))
