"""The posting arrays of a shard, from the vectors of its documents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.indexing.impacts.vectors import Vectors, create_array
from lsr_prod.storage.formats.shard import DENSE, MAX_ITEMS, WINDOW, array_name

_ALL_TERMS = 1 << 31
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TermField:
    """Terms of one kind: those of the output vocabulary, or the words of the text fields."""

    vectors: Vectors  # vectors of the documents, by ordinal
    size: int  # number of ids; the ids of the next field follow them
    most: int = _ALL_TERMS  # heaviest terms of a document that become postings


@dataclass(frozen=True, slots=True)
class _Window:
    """The runs of a window, by rising term, and their postings."""

    number: int
    terms: _Ints  # [r]
    first: _Ints  # [r], place of the first posting of a run
    counts: _Ints  # [r]
    ordinals: _Ints  # [p], from the first document of the window
    impacts: npt.NDArray[np.uint8]  # [p]


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


def _rank(starts: npt.NDArray[np.uint32], impacts: npt.NDArray[np.uint8], tenths: Any, hundredths: Any) -> None:
    """Write the 10th and the 100th largest impact of every term that has so many."""
    counts = np.diff(starts.astype(np.int64))
    many = np.flatnonzero(counts >= 10)
    for terms in np.array_split(many, len(many) // 256 + 1):
        histogram = np.zeros((len(terms), 256), np.int64)
        for row, term in zip(histogram, terms, strict=True):
            row += np.bincount(impacts[starts[term] : starts[term + 1]], minlength=256)
        above = np.cumsum(histogram[:, :0:-1], axis=1)  # from impact 255 down to 1
        tenths[terms] = (above >= 10).sum(axis=1)
        hundredths[terms] = (above >= 100).sum(axis=1)
