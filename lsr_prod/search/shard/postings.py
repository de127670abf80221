"""Impact postings of one opened shard: the kernel matches queries against them, pages are verified on first use."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.pages import MappedFiles
from lsr_prod.formats.shard import BITMAP_ABOVE, NO_RUN, ImpactArrays, array_name
from lsr_prod.search.kernels import native
from lsr_prod.search.query.sparse_query import MAX_SCORE

if TYPE_CHECKING:
    from lsr_prod.search.query.filters import Filter

_DAMAGED, _PARTIAL = -1, 1  # states of the kernel
# Documents, scores, overlaps and numbers of the hits of n queries, filled by the kernel.
HitArrays = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.uint16], npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class WordQuery:
    """Words of a text that shards match by BM25; the ids of a word differ from shard to shard."""

    names: tuple[str, ...]  # t distinct words, as the index stores them
    weights: npt.NDArray[np.float32]  # float32 [t], score per impact unit
    counted: bool  # whether they count towards ``ShardQuery.required``


@dataclass(frozen=True, slots=True)
class ShardQuery:
    """A query in the form that shards match."""

    ids: npt.NDArray[np.int32]  # int32 [q], terms of the vocabulary, in the query's order
    weights: npt.NDArray[np.float32]  # float32 [q], score per impact unit
    counted: npt.NDArray[np.uint8]  # uint8 [q], 1 for terms that count towards ``required``
    required: int  # minimum number of counted terms that a document must share, 1 or more
    k: int  # hits wanted
    floor: float = 0.0  # lowest score of a hit
    exhaustive: bool = False  # count every match, at the price of skipping nothing
    deadline: float | None = None  # ``time.monotonic()`` after which to stop; None: no deadline
    filter: "Filter | None" = None  # selects the documents that may be found; None: all
    words: WordQuery | None = None  # matched in addition to the terms; None: no words


class VectorBatch(NamedTuple):
    """Vectors of n queries, one after another."""

    offsets: npt.NDArray[np.int64]  # int64 [n + 1], where the terms of each query begin
    ids: npt.NDArray[np.int32]  # int32 [t]
    weights: npt.NDArray[np.float32]  # float32 [t]


def damaged_arrays(files: MappedFiles) -> ArtifactError:
    """Return the error for impact arrays that contradict each other."""
    return ArtifactError(f"the impact arrays of {files.folder} are damaged; open with verify=True to see the file")


@dataclass(frozen=True, slots=True)
class ShardHits:
    """The best documents of one shard, by falling score, ties by rising id."""

    matched: int  # documents seen that share enough terms
    exact: bool  # whether ``matched`` counts all documents that do
    partial: bool  # whether the deadline passed before the end
    postings: int  # postings read
    ordinals: list[int]  # of the n hits
    scores: list[float]  # float32
    overlaps: list[int]  # shared terms


class Postings:
    """Impact postings of one opened shard. Safe to share between threads."""

    def __init__(self, files: MappedFiles, arrays: ImpactArrays, *, documents: int, block_size: int) -> None:
        """Prepare the arguments of the kernel; no page of the arrays is read but the last of ``term_postings``."""
        self._files = files
        self._arrays = arrays
        self._documents = documents
        self._block_size = block_size
        self._compressed = arrays.compressed
        try:
            self._held = native.Postings(
                arrays.term_runs,
                arrays.term_postings,
                arrays.run_gaps,
                arrays.run_counts,
                arrays.run_maxima,
                arrays.term_ids,
                arrays.term_impacts,
                arrays.ids,
                arrays.impacts,
                arrays.id_rank,
                documents,
                block_size,
                self._compressed,
            )
        except ValueError as error:  # lengths that no build writes
            raise damaged_arrays(files) from error
        self._verified_terms = np.zeros(len(arrays.term_runs) - 1, bool)
        self._verified_ranks = False

    def match(self, query: ShardQuery, *, floor: float, allowed: npt.NDArray[np.uint8] | None = None) -> ShardHits:
        """Find the best ``query.k`` documents with at least ``query.required`` of the query's terms."""
        self._verify_terms(query.ids)
        self.verify_ranks()
        state, matched, skipped, postings, ordinals, scores, overlaps = native.match(
            self._held,
            query.ids,
            query.weights,
            query.counted,
            # A query cannot share more terms than it has.
            min(query.required, len(query.ids) + 1),
            query.k,
            floor,
            query.exhaustive,
            allowed,
            0.0 if query.deadline is None else query.deadline,
        )
        if state == _DAMAGED:
            raise damaged_arrays(self._files)
        partial = state == _PARTIAL
        exact = (query.exhaustive or floor == 0) and not skipped and not partial
        return ShardHits(matched, exact, partial, postings, ordinals, scores, overlaps)

    def match_batch(
        self,
        batch: VectorBatch,
        required: npt.NDArray[np.int64],
        floors: npt.NDArray[np.float32],
        allowed: npt.NDArray[np.uint8] | None,
        k: int,
        size: int,
        step: float,
        deadline: float,
        hits: HitArrays,
    ) -> tuple[int, int]:
        """Match n queries; the arguments are those of ``native.match_batch``, ``hits`` its outputs."""
        offsets, ids, weights = batch
        try:
            verified = bool(self._verified_terms[ids].all())  # the kernel refuses negative ids
        except IndexError:
            verified = True  # the kernel names the query
        if not verified and ids.min() >= 0 and ids.max() < size:
            self._verify_terms(ids)
        self.verify_ranks()
        return native.match_batch(
            self._held, offsets, ids, weights, required, floors, allowed, k, size, step, MAX_SCORE, deadline, *hits
        )

    def match_all(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the ordinals of all documents that contain every one of some distinct terms or words."""
        k = int(self.frequencies(ids).min())
        documents, scores, overlaps = np.empty(k, np.int64), np.empty(k, np.float32), np.empty(k, np.uint16)
        numbers = np.zeros(1, np.int64)
        batch = VectorBatch(np.array([0, len(ids)], np.int64), ids, np.ones(len(ids), np.float32))
        required, floors = np.full(len(ids) + 1, len(ids), np.int64), np.zeros(1, np.float32)
        hits = documents, scores, overlaps, numbers
        state, _ = self.match_batch(batch, required, floors, None, k, len(self._verified_terms), 1.0, 0.0, hits)
        if state < 0:
            raise damaged_arrays(self._files)
        return documents[: numbers[0]]

    def impact(self, term: int, ordinal: int) -> int:
        """Return the impact of a term or word in the postings of a document, 0 if it is not there."""
        self._verify_terms(np.array([term], np.int32))
        a = self._arrays
        runs = slice(int(a.term_runs[term]), int(a.term_runs[term + 1]))
        gaps = a.run_gaps[runs]
        blocks = np.cumsum(gaps, dtype=np.int64)[gaps != NO_RUN] - 1
        counts = a.run_counts[runs][gaps != NO_RUN].astype(np.int64) + 1
        block, place = divmod(ordinal, self._block_size)
        run = int(np.searchsorted(blocks, block))
        if run == len(blocks) or blocks[run] != block:
            return 0
        bitmaps = self._compressed & (counts > BITMAP_ABOVE)
        id_at = int(a.term_ids[term]) + int(np.where(bitmaps, BITMAP_ABOVE, counts)[:run].sum())
        impact_at = int(a.term_impacts[term]) + int(np.where(self._compressed & (counts == 1), 0, counts)[:run].sum())
        places: npt.NDArray[Any] = a.ids[id_at : id_at + int(counts[run])]
        if bitmaps[run]:
            bitmap = a.ids[id_at : id_at + BITMAP_ABOVE].view(np.uint8)
            places = np.flatnonzero(np.unpackbits(bitmap, bitorder="little"))
        at = np.flatnonzero(places == place)
        if not len(at):
            return 0
        if self._compressed and counts[run] == 1:
            return int(a.run_maxima[runs][gaps != NO_RUN][run])
        return int(a.impacts[impact_at + at[0]])

    def document_frequencies(self) -> npt.NDArray[np.int64]:
        """Return int64 [T]: documents whose postings hold each term and word, deleted ones included."""
        postings = self._arrays.term_postings
        self._files.verify_items(postings, array_name("term_postings"), 0, len(postings))
        return np.diff(postings)

    def frequencies(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return int64 [n]: the document frequencies of some terms and words; reads no others."""
        postings = self._arrays.term_postings
        self._files.verify_rows(postings, array_name("term_postings"), ids.astype(np.int64), ids.astype(np.int64) + 2)
        return postings[1:][ids] - postings[:-1][ids]

    def verify_ranks(self) -> None:
        """Verify the ranks by id, which break ties in score."""
        if not self._verified_ranks:
            self._files.verify_items(self._arrays.id_rank, array_name("id_rank"), 0, self._documents)
            self._verified_ranks = True

    def _verify_terms(self, ids: npt.NDArray[np.int32]) -> None:
        """Verify everything that the postings of the query's terms lie on, each term once."""
        if self._verified_terms[ids].all():
            return
        a, verify = self._arrays, self._files.verify_items
        for term in ids.tolist():
            if self._verified_terms[term]:
                continue
            verify(a.term_runs, array_name("term_runs"), term, term + 2)
            verify(a.term_postings, array_name("term_postings"), term, term + 2)
            first, last = int(a.term_runs[term]), int(a.term_runs[term + 1])
            for name in ("run_gaps", "run_counts", "run_maxima"):
                verify(getattr(a, name), array_name(name), first, last)
            for name in ("ids", "impacts"):
                starts = getattr(a, f"term_{name}")
                if self._compressed:
                    verify(starts, array_name(f"term_{name}"), term, term + 2)
                verify(getattr(a, name), array_name(name), int(starts[term]), int(starts[term + 1]))
            self._verified_terms[term] = True
