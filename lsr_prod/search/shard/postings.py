"""Impact postings of one opened shard: the kernel matches queries against them, pages are verified on first use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lsr_prod.errors import ArtifactError
from lsr_prod.search.kernels import native
from lsr_prod.storage.formats.pages import MappedFiles
from lsr_prod.storage.formats.shard_format import FORWARD_ARRAYS, MATCHING_ARRAYS, ImpactArrays, array_name

if TYPE_CHECKING:
    from lsr_prod.search.query.filters import Filter

Allowed = np.typing.NDArray[np.uint8]  # [N], 1 for the documents that may be found
DAMAGED, PARTIAL, UNVERIFIED = -1, 1, 2  # states of the kernels


@dataclass(frozen=True, slots=True)
class WordQuery:
    """Words of a text that shards match by BM25; the ids of a word differ from shard to shard."""

    names: tuple[str, ...]  # t distinct words, as the index stores them
    weights: np.typing.NDArray[np.float32]  # float32 [t], score per impact unit
    counted: bool  # whether they count towards ``ShardQuery.required``


@dataclass(frozen=True, slots=True)
class ShardQuery:
    """A query in the form that shards match."""

    ids: np.typing.NDArray[np.int32]  # int32 [q], terms of the vocabulary, in the query's order
    weights: np.typing.NDArray[np.float32]  # float32 [q], score per impact unit
    counted: np.typing.NDArray[np.uint8]  # uint8 [q], 1 for terms that count towards ``required``
    required: int  # minimum number of counted terms that a document must share, 1 or more
    k: int  # hits wanted
    floor: float = 0.0  # lowest score of a hit
    scan_share: float = 1.0  # of what the terms can add to a score: that of the terms that are scanned; see ``Request``
    deadline: float | None = None  # ``time.monotonic()`` after which to stop; None: no deadline
    filter: "Filter | None" = None  # selects the documents that may be found; None: all
    words: WordQuery | None = None  # matched in addition to the terms; None: no words


class VectorBatch(NamedTuple):
    """Vectors of n queries, one after another."""

    offsets: np.typing.NDArray[np.int64]  # int64 [n + 1], where the terms of each query begin
    ids: np.typing.NDArray[np.int32]  # int32 [t]
    weights: np.typing.NDArray[np.float32]  # float32 [t]


def damaged_arrays(files: MappedFiles) -> ArtifactError:
    """Return the error for impact arrays that contradict each other."""
    return ArtifactError(f"the impact arrays of {files.folder} are damaged; open with verify=True to see the file")


@dataclass(frozen=True, slots=True)
class ShardHits:
    """The best documents of one shard, by falling score, ties by rising id."""

    matched: int  # documents that share enough terms
    partial: bool  # whether the deadline passed before all were counted
    postings: int  # postings read
    ordinals: list[int]  # of the n hits
    scores: list[float]  # float32
    overlaps: list[int]  # shared terms


class Postings:
    """Impact postings of one opened shard. Safe to share between threads."""

    def __init__(
        self,
        files: MappedFiles,
        arrays: ImpactArrays,
        verify_vectors: Callable[[np.typing.NDArray[np.int64]], None],
        *,
        vocabulary_size: int,
    ) -> None:
        """Prepare the arguments of the kernels; no page of the arrays is read."""
        self._files = files
        self._arrays = arrays
        self._verify_vectors = verify_vectors
        self._documents = len(arrays.forward_offsets) - 1
        self._verified_terms = np.zeros(len(arrays.term_runs) - 1, bool)
        pages = [files.pages_of(getattr(arrays, name), array_name(name)) for name in FORWARD_ARRAYS]
        try:
            self.native = native.Shard(
                tuple(getattr(arrays, name) for name in MATCHING_ARRAYS),
                tuple(getattr(arrays, name) for name in FORWARD_ARRAYS),
                None if files.page_flags is None else self._verified_terms,
                files.page_flags,
                tuple(pages),
                vocabulary_size,
            )
        except ValueError as error:  # lengths that no build writes
            raise damaged_arrays(files) from error

    def mark(self, query: ShardQuery, *, allowed: Allowed | None = None) -> tuple[Allowed, bool]:
        """Find all matches, whatever their score.

        Returns:
            uint8 [N], 1 for a match; and whether the deadline passed before the end.
        """
        marks = np.zeros(self._documents, np.uint8)
        return marks, self.match(replace(query, k=0, scan_share=1.0), 0.0, 0, allowed, marks).partial

    def match(
        self, query: ShardQuery, floor: float, dk: int, allowed: Allowed | None, marks: Allowed | None = None
    ) -> ShardHits:
        """Find the best ``query.k`` documents with at least ``query.required`` of the query's terms; mark all."""
        # A query cannot share more terms than it has.
        required, deadline = min(query.required, len(query.ids) + 1), query.deadline or 0.0
        share = query.scan_share
        ids, weights, counted = query.ids, query.weights, query.counted
        while True:
            state, matched, postings, ordinals, scores, overlaps = native.match(
                self.native, ids, weights, counted, required, query.k, dk, floor, share, allowed, deadline, marks
            )
            if state != UNVERIFIED:
                break
            self.verify(ids, ordinals)
        if state == DAMAGED:
            raise damaged_arrays(self._files)
        return ShardHits(matched, state == PARTIAL, postings, ordinals, scores, overlaps)

    def match_all(self, ids: np.typing.NDArray[np.int32]) -> Allowed:
        """Return uint8 [N]: 1 for documents that contain every one of some distinct terms or words."""
        ones = np.ones(len(ids), np.uint8)
        return self.mark(ShardQuery(ids, ones.astype(np.float32), ones, len(ids), 0))[0]

    def impacts(self, term: int, ordinals: np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.uint8]:
        """Return uint8 [n]: impacts of a term or word in the postings of documents, 0 where it is not there."""
        self.verify(np.array([term], np.int32), [])
        found = np.zeros(len(ordinals), np.uint8)
        if native.impacts(self.native, term, ordinals, found) == DAMAGED:
            raise damaged_arrays(self._files)
        return found

    def document_frequencies(self) -> np.typing.NDArray[np.int64]:
        """Return int64 [T]: documents whose postings hold each term and word, deleted ones included."""
        postings = self._arrays.term_postings
        self._files.verify_items(postings, array_name("term_postings"), 0, len(postings))
        wide: np.typing.NDArray[np.int64] = postings.astype(np.int64)
        return wide[1:] - wide[:-1]

    def frequencies(self, ids: np.typing.NDArray[np.int32]) -> np.typing.NDArray[np.int64]:
        """Return int64 [n]: the document frequencies of some terms and words; reads no others."""
        postings = self._arrays.term_postings
        self._files.verify_rows(postings, array_name("term_postings"), ids.astype(np.int64), ids.astype(np.int64) + 2)
        return (postings[1:][ids] - postings[:-1][ids]).astype(np.int64)

    def verify(self, ids: np.typing.NDArray[np.int32], ordinals: Sequence[int]) -> None:
        """Verify everything that the postings of terms and the vectors of documents lie on, each once."""
        a, verify = self._arrays, self._files.verify_items
        for term in ids[(ids >= 0) & (ids < len(self._verified_terms))].tolist():
            if self._verified_terms[term]:
                continue
            for name in ("term_runs", "term_postings", "term_ids"):
                verify(getattr(a, name), array_name(name), term, term + 2)
            for name in ("term_tenths", "term_hundredths"):
                verify(getattr(a, name), array_name(name), term, term + 1)
            for ends, names in (
                (a.term_runs, ("run_windows", "run_counts")),
                (a.term_ids, ("ids",)),
                (a.term_postings, ("impacts",)),
            ):
                for name in names:
                    verify(getattr(a, name), array_name(name), int(ends[term]), int(ends[term + 1]))
            self._verified_terms[term] = True
        if len(ordinals):
            self._verify_vectors(np.array(ordinals, np.int64))
