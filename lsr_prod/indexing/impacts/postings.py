"""The posting arrays of a shard: of the terms of its documents' vectors, and of their words for BM25.

``write_postings`` writes the arrays for the vectors of both kinds. ``WordSpill`` makes vectors of the words of texts;
their impacts depend on the average number of words per document.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lsr_prod.encoding.tables.live_rows import live_batches
from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.impacts.vectors import GrowingArray, Vectors, VectorSpill, create_array
from lsr_prod.inference.terms.analysis import words_of
from lsr_prod.storage.formats.index_format import Analyzer
from lsr_prod.storage.formats.shard_format import BATCH_ROWS, DENSE, MAX_ITEMS, WINDOW, array_name
from lsr_prod.storage.formats.term_weights import word_impacts

if TYPE_CHECKING:
    from lsr_prod.encoding.tables import Table

_Ints = np.typing.NDArray[np.int64]

_ALL_TERMS = 1 << 31
_SAMPLE = 20_000  # documents; their mean length has an error of about one percent
_BATCH_DOCUMENTS = 1024  # documents whose words are in memory at once
_BATCH_WORDS = 1 << 20  # words in memory at once; a single document may have more
_WIDE = 1 << 31  # vocabulary size that makes ids int32


@dataclass(frozen=True, slots=True)
class TermField:
    """Terms of one kind: those of the output vocabulary, or the words of the text fields."""

    vectors: Vectors  # vectors of the documents, by ordinal
    size: int  # number of ids; the ids of the next field follow them
    most: int = _ALL_TERMS  # heaviest terms of a document that become postings


@dataclass(frozen=True, slots=True)
class WordVectors:
    """Words of a shard's documents."""

    names: list[str]  # the T distinct words, sorted
    vectors: Vectors  # vectors of the documents, by ordinal; the id of a word is its position in ``names``


@dataclass(frozen=True, slots=True)
class _Window:
    """The runs of a window, by rising term, and their postings."""

    number: int
    terms: _Ints  # [r]
    first: _Ints  # [r], place of the first posting of a run
    counts: _Ints  # [r]
    ordinals: _Ints  # [p], from the first document of the window
    impacts: np.typing.NDArray[np.uint8]  # [p]


def write_postings(folder: Path, fields: Sequence[TermField]) -> None:
    """Write the posting arrays of a shard.

    The first pass over the vectors counts runs and postings of every term; the second writes each run and each posting
    to its position in the mapped files. Memory use is a few integers per term, and the postings of a window.
    """

    def make(name: str, dtype: str, length: int) -> Any:
        return create_array(folder / array_name(name), np.dtype(dtype), length)

    if len(fields[0].vectors) > WINDOW << 16:
        raise ValueError(f"a shard cannot hold {len(fields[0].vectors)} documents; set index.shards to a larger number")
    begins = np.cumsum([0, *(field.size for field in fields)])
    terms = int(begins[-1])
    runs, postings, ids = (np.zeros(terms + 1, np.int64) for _ in range(3))
    for field, begin in zip(fields, begins[:-1], strict=True):
        for window in _windows(field):
            places = window.terms + begin + 1
            runs[places] += 1
            postings[places] += window.counts
            ids[places] += _items(window.counts)
    starts = []
    for name, counts in (("term_runs", runs), ("term_postings", postings), ("term_ids", ids)):
        np.cumsum(counts, out=counts)
        if counts[-1] > MAX_ITEMS:
            raise ValueError(f"a shard cannot hold {counts[-1]} postings; set index.shards to a larger number")
        starts.append(make(name, "<u4", terms + 1))
        starts[-1][:] = counts
    by_run = [make(name, "<u2", int(runs[-1])) for name in ("run_windows", "run_counts")]
    by_posting = [make("ids", "<u2", int(ids[-1])), make("impacts", "u1", int(postings[-1]))]
    for field, begin in zip(fields, begins[:-1], strict=True):
        for window in _windows(field):
            _fill(window, window.terms + begin, (runs, postings, ids), *by_run, *by_posting)
    _rank(starts[1], by_posting[1], *(make(name, "u1", terms) for name in ("term_tenths", "term_hundredths")))


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


def _windows(field: TermField) -> Iterator[_Window]:
    offsets = field.vectors.offsets.astype(np.int64)
    for first in range(0, len(field.vectors), WINDOW):
        rows = Vectors(
            (offsets[first : first + WINDOW + 1] - offsets[first]).astype(np.uint32),
            field.vectors.terms[offsets[first] : offsets[min(first + WINDOW, len(offsets) - 1)]],
            field.vectors.impacts[offsets[first] : offsets[min(first + WINDOW, len(offsets) - 1)]],
        ).top(field.most)
        if len(rows.terms) and not 0 <= rows.terms.min() <= rows.terms.max() < field.size:
            raise ArtifactError("a vector has terms outside the vocabulary; encode the corpus again")
        # One sort of numbers, which takes a tenth of the time of a sort of places.
        ordinals = np.repeat(np.arange(len(rows)), rows.lengths)
        keys = np.sort(rows.terms.astype(np.int64) << 22 | ordinals << 8 | rows.impacts)
        terms = keys >> 22
        starts = np.flatnonzero(np.diff(terms, prepend=-1))
        counts = np.diff(starts, append=len(keys))
        yield _Window(first // WINDOW, terms[starts], starts, counts, keys >> 8 & WINDOW - 1, keys.astype(np.uint8))


def _items(counts: _Ints) -> _Ints:
    return np.where(counts > DENSE, DENSE, counts)


def _fill(
    window: _Window, terms: _Ints, places: tuple[_Ints, _Ints, _Ints], windows: Any, counts: Any, ids: Any, impacts: Any
) -> None:
    """Write the runs of a window at the next ``places`` of their terms."""
    runs, postings, items = places
    windows[runs[terms]] = window.number
    counts[runs[terms]] = window.counts - 1
    at = np.arange(len(window.impacts)) - np.repeat(window.first, window.counts)
    impacts[np.repeat(postings[terms], window.counts) + at] = window.impacts
    listed = np.repeat(window.counts <= DENSE, window.counts)
    ids[(np.repeat(items[terms], window.counts) + at)[listed]] = window.ordinals[listed]
    for run in np.flatnonzero(window.counts > DENSE):
        bits = np.zeros(WINDOW, np.uint8)
        bits[window.ordinals[window.first[run] :][: window.counts[run]]] = 1
        ids[items[terms[run]] :][:DENSE] = np.packbits(bits, bitorder="little").view("<u2")
    runs[terms] += 1
    postings[terms] += window.counts
    items[terms] += _items(window.counts)


def _rank(
    starts: np.typing.NDArray[np.uint32], impacts: np.typing.NDArray[np.uint8], tenths: Any, hundredths: Any
) -> None:
    """Write the 10th and the 100th largest impact of every term that has so many."""
    many = np.flatnonzero(np.diff(starts.astype(np.int64)) >= 10)
    for terms in np.array_split(many, len(many) // 256 + 1):
        histogram = np.zeros((len(terms), 256), np.int64)
        for row, term in zip(histogram, terms, strict=True):
            row += np.bincount(impacts[starts[term] : starts[term + 1]], minlength=256)
        above = np.cumsum(histogram[:, :0:-1], axis=1)  # from impact 255 down to 1
        tenths[terms] = (above >= 10).sum(axis=1)
        hundredths[terms] = (above >= 100).sum(axis=1)
