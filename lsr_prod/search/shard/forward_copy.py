"""Forward copy of one opened shard: document-ordered vectors with all stored terms, heaviest first."""

from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.formats.pages import MappedFiles
from lsr_prod.formats.shard import ImpactArrays, array_name
from lsr_prod.kernels import native
from lsr_prod.search.shard.postings import damaged_arrays

Vectors = tuple[npt.NDArray[Any], ...]  # offsets, terms, impacts


class ForwardCopy:
    """The vectors of one opened shard. Safe to share between threads."""

    def __init__(self, files: MappedFiles, arrays: ImpactArrays, *, vocabulary_size: int) -> None:
        """Read vectors from mapped arrays."""
        self._files = files
        self._arrays = arrays
        self._vocabulary_size = vocabulary_size

    def score(
        self,
        ordinals: npt.NDArray[np.int64],
        ids: npt.NDArray[np.int32],
        weights: npt.NDArray[np.float32],
        *,
        dk: int,
        vectors: Vectors = (),
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint16]]:
        """Score given documents.

        Returns:
            Scores float32 [n] and shared terms uint16 [n].
        """
        if vectors:
            offsets, terms, impacts = vectors
            ordinals = np.arange(len(ordinals))
        else:
            self._verify(ordinals)
            a = self._arrays
            offsets, terms, impacts = a.forward_offsets, a.forward_terms, a.forward_impacts
        scores, counts = np.empty(len(ordinals), np.float32), np.empty(len(ordinals), np.uint16)
        size = self._vocabulary_size
        if native.score(offsets, terms, impacts, ordinals, dk, ids, weights, size, scores, counts) < 0:
            raise damaged_arrays(self._files)
        return scores, counts

    def gather(self, ordinals: npt.NDArray[np.int64], dk: int) -> Vectors:
        """Copy the vectors of given documents next to each other.

        Scattered over the mapped arrays, each vector would cost several reads of memory.

        Returns:
            Offsets int64 [n + 1], terms and impacts.
        """
        self._verify(ordinals)
        a = self._arrays
        starts = a.forward_offsets[ordinals]
        lengths = np.minimum(a.forward_offsets[ordinals + 1] - starts, dk)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return offsets, a.forward_terms[places], a.forward_impacts[places]

    def vector(self, ordinal: int, dk: int) -> dict[int, int]:
        """Return impact by term id of a document, its ``dk`` heaviest terms."""
        self._verify(np.array([ordinal]))
        a = self._arrays
        start, stop = a.forward_offsets[ordinal : ordinal + 2].tolist()
        stop = min(stop, start + dk)
        return dict(zip(a.forward_terms[start:stop].tolist(), a.forward_impacts[start:stop].tolist(), strict=True))

    def _verify(self, ordinals: npt.NDArray[np.int64]) -> None:
        """Verify everything that the vectors of some documents lie on."""
        a, verify = self._arrays, self._files.verify_rows
        verify(a.forward_offsets, array_name("forward_offsets"), ordinals, ordinals + 2)
        starts, stops = a.forward_offsets[ordinals], a.forward_offsets[ordinals + 1]
        if len(ordinals) and not (starts.min() >= 0 and stops.max() <= len(a.forward_terms)):
            raise damaged_arrays(self._files)
        verify(a.forward_terms, array_name("forward_terms"), starts, stops)
        verify(a.forward_impacts, array_name("forward_impacts"), starts, stops)
