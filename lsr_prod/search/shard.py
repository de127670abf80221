"""One opened shard: matching by the kernels, ids, stored fields and vectors from the mapped files."""

import bisect
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.index import ShardManifest
from lsr_prod.formats.pages import MappedFiles
from lsr_prod.formats.shard import DOCUMENTS_FILE, IMPACTS_FOLDER, ImpactArrays, array_name
from lsr_prod.search.documents import Documents
from lsr_prod.search.words import Words, posting_impact
from lsr_prod.search.workspace import Workspace

__all__ = ["OpenShard", "ShardHits", "Vectors"]

_Item = TypeVar("_Item", bound=np.generic)
Vectors = tuple[npt.NDArray[Any], ...]  # offsets, terms, impacts

_SLICE = 1 << 18  # postings between two looks at the clock
_EVERYTHING = 1 << 62


def _sealed(array: npt.NDArray[_Item]) -> npt.NDArray[_Item]:
    """A read-only view. Mapped arrays and those of another process are so, and kernels compile for each type anew."""
    view = array.view()
    view.flags.writeable = False
    return view


_NO_MASK = _sealed(np.empty(0, np.uint8))


@dataclass(frozen=True, slots=True)
class ShardHits:
    """The best documents of one shard, by falling score, ties by rising id.

    Attributes:
        matched: documents that were seen to share enough terms.
        exact: whether these are all that do.
        partial: whether the deadline came before the end.
        postings: that were read.
        ordinals: n of them.
        scores: float32.
        overlaps: shared terms.
    """

    matched: int
    exact: bool
    partial: bool
    postings: int
    ordinals: list[int]
    scores: list[float]
    overlaps: list[int]


class OpenShard:
    """A shard's maps; see ``formats.shard`` for the layout. Safe to share between threads.

    Attributes:
        folder: where it lies.
        manifest: its manifest.
        arrays: the impact arrays.
        documents: ids, stored fields and attributes.
        blocks: number of blocks.
        words: the words that have postings; None if the shard was built without BM25.
    """

    def __init__(self, folder: Path, manifest: ShardManifest, *, lazy: bool) -> None:
        """Map the shard; nothing is read but headers.

        Args:
            folder: of the shard.
            manifest: as the version has it.
            lazy: verify every page when something of it is read first.

        Raises:
            ArtifactError: a file is missing or has another size than the manifest says, or the arrays do not fit.
        """
        self.folder = folder
        self.manifest = manifest
        mapped = [
            file.path
            for file in manifest.files
            if file.path == DOCUMENTS_FILE or file.path.startswith(f"{IMPACTS_FOLDER}/")
        ]
        self._files = MappedFiles(folder, manifest.files, mapped, lazy=lazy)
        self.arrays = ImpactArrays.open(self._files, documents=manifest.documents, block_size=manifest.block_size)
        self.documents = Documents(self._files, manifest.documents)
        self.words = Words.open(self._files, len(self.arrays.term_runs) - 1)
        self.blocks = -(-manifest.documents // manifest.block_size)
        self._places = 1 << (8 * self.arrays.ids.itemsize)
        self._compressed = self.arrays.compressed
        self._verified_terms = np.zeros(len(self.arrays.term_runs) - 1, bool)
        self._verified_ranks = False

    def match(
        self,
        ids: npt.NDArray[np.int32],
        weights: npt.NDArray[np.float32],
        counted: npt.NDArray[np.uint8],
        *,
        required: int,
        k: int,
        memory: Workspace,
        allowed: npt.NDArray[np.uint8] | None = None,
        floor: float = 0.0,
        exhaustive: bool = False,
        deadline: float | None = None,
    ) -> ShardHits:
        """Find the best ``k`` documents with at least ``required`` of the query's terms.

        Args:
            ids: int32 [q], terms of the vocabulary.
            weights: float32 [q], what one impact unit adds to a score.
            counted: uint8 [q], 1 for terms that count towards ``required``.
            required: 1 or more.
            k: 0 or more.
            memory: of the calling thread.
            allowed: uint8 [N], 1 for documents that may be found; None: all.
            floor: least score of a hit.
            exhaustive: count every match, at the price of skipping nothing.
            deadline: ``time.monotonic()`` after which to stop.

        Raises:
            ArtifactError: the arrays are damaged.
        """
        from lsr_prod.search.kernel import (  # numba is imported by the first query
            DAMAGED,
            PAUSED,
            TOO_SMALL,
            match_shard,
        )

        ids, weights, counted = _sealed(ids), _sealed(weights), _sealed(counted)
        self._verify_terms(ids)
        self.verify_ranks()
        a, k = self.arrays, min(k, self.manifest.documents)
        # A count past every query is one more than this one has; larger numbers may not fit into the kernel's.
        required = min(required, len(ids) + 1)
        memory.fit(places=self._places, blocks=self.blocks, k=k)
        memory.progress[:] = 0
        while True:
            state = match_shard(
                a.term_runs,
                a.term_postings,
                a.run_gaps,
                a.run_counts,
                a.run_maxima,
                a.term_ids,
                a.term_impacts,
                a.ids,
                a.impacts,
                self._compressed,
                a.id_rank,
                self.manifest.block_size,
                _NO_MASK if allowed is None else allowed,
                ids,
                weights,
                counted,
                required,
                floor,
                exhaustive,
                _EVERYTHING if deadline is None else _SLICE,
                memory.bounds,
                memory.hits,
                memory.heads,
                memory.order,
                memory.entries,
                memory.scores[: self._places],
                memory.score_bits[: self._places],
                memory.counts[: self._places],
                memory.top_scores,
                memory.top_documents,
                memory.top_counts,
                k,
                memory.progress,
            )
            if state == DAMAGED:
                raise self._damage()
            if state == TOO_SMALL:
                memory.fit_entries(int(memory.progress[0]))
                memory.progress[0] = 0
            elif state != PAUSED or (deadline is not None and time.monotonic() >= deadline):
                break
        return self._hits(memory, state == PAUSED, exhaustive or floor == 0)

    def _hits(self, memory: Workspace, partial: bool, whole: bool) -> ShardHits:
        """What the kernel left in the workspace."""
        _, _, filled, matched, postings, skipped, _ = memory.progress.tolist()
        scores, ordinals = memory.top_scores[:filled], memory.top_documents[:filled]
        if partial:  # the heap is not sorted yet
            order = np.lexsort((self.arrays.id_rank[ordinals], -scores))
            memory.top_counts[:filled] = memory.top_counts[:filled][order]
            scores[:], ordinals[:] = scores[order], ordinals[order]
        return ShardHits(
            matched,
            whole and not skipped and not partial,
            partial,
            postings,
            ordinals.tolist(),
            scores.tolist(),
            memory.top_counts[:filled].tolist(),
        )

    def score(
        self,
        ordinals: npt.NDArray[np.int64],
        ids: npt.NDArray[np.int32],
        weights: npt.NDArray[np.float32],
        *,
        dk: int,
        vocabulary_size: int,
        memory: Workspace,
        vectors: Vectors = (),
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint16]]:
        """Score given documents from the document-ordered copy.

        Args:
            ordinals: int64 [n].
            ids: int32 [q], terms.
            weights: float32 [q], what one impact unit adds to a score.
            dk: terms of a document that are looked at, heaviest first.
            vocabulary_size: V.
            memory: of the calling thread.
            vectors: of these documents, as ``gather`` returned them; empty: they are read from the map.

        Returns:
            Scores float32 [n] and shared terms uint16 [n].

        Raises:
            ArtifactError: the arrays are damaged.
        """
        from lsr_prod.search.forward import score_documents

        a = self.arrays
        if vectors:
            offsets, terms, impacts = vectors
            ordinals = np.arange(len(ordinals))
        else:
            self.verify_vectors(ordinals)
            offsets, terms, impacts = a.forward_offsets, a.forward_terms, a.forward_impacts
        scores, counts = np.empty(len(ordinals), np.float32), np.empty(len(ordinals), np.uint16)
        slots = memory.term_slots(vocabulary_size)
        whole = score_documents(
            offsets,
            terms,
            impacts,
            ordinals,
            dk,
            _sealed(ids),
            _sealed(weights),
            slots,
            scores,
            counts,
        )
        if not whole:
            raise self._damage()
        return scores, counts

    def gather(self, ordinals: npt.NDArray[np.int64], dk: int) -> Vectors:
        """Vectors of given documents side by side: scattered over the map, each would cost several reads of memory.

        Args:
            ordinals: int64 [n].
            dk: terms of a document, heaviest first.

        Returns:
            Offsets int64 [n + 1], terms and impacts, read-only.
        """
        self.verify_vectors(ordinals)
        a = self.arrays
        starts = a.forward_offsets[ordinals]
        lengths = np.minimum(a.forward_offsets[ordinals + 1] - starts, dk)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return _sealed(offsets), _sealed(a.forward_terms[places]), _sealed(a.forward_impacts[places])

    def ordinal(self, doc_id: str) -> int | None:
        """The ordinal of a document, or None if it is not in this shard."""
        self._files.verify_items(self.arrays.id_order, array_name("id_order"), 0, len(self.arrays.id_order))
        order = self.arrays.id_order
        place = bisect.bisect_left(order, doc_id, key=lambda ordinal: self.documents.doc_id(int(ordinal)))
        if place == len(order):
            return None
        ordinal = int(order[place])
        return ordinal if self.documents.doc_id(ordinal) == doc_id else None

    def vector(self, ordinal: int, dk: int) -> dict[int, int]:
        """Impact by term id of a document, its ``dk`` heaviest terms."""
        self.verify_vectors(np.array([ordinal]))
        start, stop = self.arrays.forward_offsets[ordinal : ordinal + 2].tolist()
        stop = min(stop, start + dk)
        terms, impacts = self.arrays.forward_terms[start:stop], self.arrays.forward_impacts[start:stop]
        return dict(zip(terms.tolist(), impacts.tolist(), strict=True))

    @property
    def vocabulary_size(self) -> int:
        """V: the id of every term of the encoder lies below it; words come after them."""
        return len(self.arrays.term_runs) - 1 if self.words is None else self.words.first

    def impact(self, term: int, ordinal: int) -> int:
        """The impact of a term or word in the postings of a document, 0 if it is not there."""
        self._verify_terms(np.array([term], np.int32))
        return posting_impact(self.arrays, self.manifest.block_size, term, ordinal)

    def document_frequencies(self) -> npt.NDArray[np.int64]:
        """int64 [T]: documents of this shard whose postings hold each term and word, deleted ones included."""
        name = "term_postings"
        self._files.verify_items(self.arrays.term_postings, array_name(name), 0, len(self.arrays.term_postings))
        return np.diff(self.arrays.term_postings)

    def frequencies(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """int64 [n]: the same of some terms and words; reads no others."""
        postings = self.arrays.term_postings
        self._files.verify_rows(postings, array_name("term_postings"), ids.astype(np.int64), ids.astype(np.int64) + 2)
        return postings[1:][ids] - postings[:-1][ids]

    def _verify_terms(self, ids: npt.NDArray[np.int32]) -> None:
        """Verify what the query's terms will read, each term once."""
        if self._verified_terms[ids].all():
            return
        a, verify = self.arrays, self._files.verify_items
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

    def verify_ranks(self) -> None:
        """Verify what ties in score are broken by."""
        if not self._verified_ranks:
            self._files.verify_items(self.arrays.id_rank, array_name("id_rank"), 0, len(self.arrays.id_rank))
            self._verified_ranks = True

    def verify_vectors(self, ordinals: npt.NDArray[np.int64]) -> None:
        """Verify what the vectors of documents lie on."""
        a, verify = self.arrays, self._files.verify_rows
        verify(a.forward_offsets, array_name("forward_offsets"), ordinals, ordinals + 2)
        starts, stops = a.forward_offsets[ordinals], a.forward_offsets[ordinals + 1]
        if len(ordinals) and not (starts.min() >= 0 and stops.max() <= len(a.forward_terms)):
            raise self._damage()
        verify(a.forward_terms, array_name("forward_terms"), starts, stops)
        verify(a.forward_impacts, array_name("forward_impacts"), starts, stops)

    def _damage(self) -> ArtifactError:
        return ArtifactError(f"the impact arrays of {self.folder} are damaged; open with verify=True to see the file")
