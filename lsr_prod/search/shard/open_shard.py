"""One opened shard: postings, forward copy, documents and words from its mapped files."""

import bisect
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lsr_prod.errors import ArtifactError, StorageError
from lsr_prod.search.kernels import native
from lsr_prod.search.shard import documents, postings
from lsr_prod.storage.formats import digests, index_format, pages, shard_format, sparse

if TYPE_CHECKING:
    from lsr_prod.search.shard.boolean_shard import BooleanShard

_CACHED = 1 << 14  # words whose ids are cached: a query looks up each of its words twice, and queries share words
Vectors = tuple[np.typing.NDArray[Any], ...]  # offsets, terms, impacts


class OpenShard:
    """The mapped files of a shard; see ``formats.shard`` for the layout. Safe to share between threads."""

    def __init__(self, folder: Path, manifest: index_format.ShardManifest, *, lazy: bool) -> None:
        """Map the shard; only headers are read."""
        self.folder = folder
        self.manifest = manifest
        self._lazy = lazy
        mapped = [file.path for file in manifest.files if shard_format.is_mapped(file.path)]
        scattered = [name for name in mapped if name in shard_format.SCATTERED]
        self.files = files = pages.MappedFiles(folder, manifest.files, mapped, lazy=lazy, scattered=scattered)
        self.arrays = arrays = shard_format.ImpactArrays.open(files, documents=manifest.documents)
        self.documents = documents.Documents(files, manifest.documents)
        terms = len(arrays.term_runs) - 1
        self.words = LexicalTerms.open(files, terms)
        self.vocabulary_size = terms if self.words is None else self.words.first
        self.forward = ForwardCopy(files, arrays, vocabulary_size=self.vocabulary_size)
        self.postings = postings.Postings(files, arrays, self.forward.verify, vocabulary_size=self.vocabulary_size)

    def ordinal(self, doc_id: str) -> int | None:
        """Return the ordinal of a document, or None if it is not in this shard."""
        everything = range(self.manifest.documents)
        place = bisect.bisect_left(everything, doc_id, key=self.documents.doc_id)
        return place if place < len(everything) and self.documents.doc_id(place) == doc_id else None

    @cached_property
    def boolean(self) -> "BooleanShard":
        """The Tantivy index, verified as a whole when it is opened."""
        from lsr_prod.search.shard.boolean_shard import BooleanShard

        if self._lazy:
            prefix = f"{shard_format.TANTIVY_FOLDER}/"
            digests.verify_files(self.folder, [file for file in self.manifest.files if file.path.startswith(prefix)])
        try:
            return BooleanShard.open(self.folder, self.manifest.documents)
        except ValueError as error:  # of Tantivy, also if there are too many open files
            place = self.folder / shard_format.TANTIVY_FOLDER
            kind = StorageError if place.is_dir() else ArtifactError
            raise kind(f"{place} cannot be opened ({error}); if it is damaged, build the shard again") from error

    def match_tokens(self, tokens: Sequence[str]) -> np.typing.NDArray[np.uint8]:
        """Return uint8 [N]: 1 for documents whose text contains all tokens, deleted ones included.

        The postings of words find them, or Tantivy if the shard was built without BM25.
        """
        found = np.zeros(self.manifest.documents, np.uint8)
        if not tokens:
            found[:] = 1
        elif self.words is None:
            found[self.boolean.match_tokens(tokens)] = 1
        elif (ids := self.words.ids(tokens)).min() >= 0:
            found = self.postings.match_all(ids)
        return found


class LexicalTerms:
    """Dictionary of the words of one opened shard. Safe to share between threads."""

    def __init__(self, files: pages.MappedFiles, arrays: shard_format.WordArrays, first: int) -> None:
        """Look words up in ``arrays``."""
        self.first = first
        self._files = files
        self._arrays = arrays
        self._cache: dict[str, int] = {}

    @classmethod
    def open(cls, files: pages.MappedFiles, terms: int) -> "LexicalTerms | None":
        """Open the dictionary of a shard; return None if the shard was built without BM25."""
        present = [shard_format.array_name(name) in files for name in shard_format.WORD_ARRAYS]
        if not any(present):
            return None
        if not all(present):
            raise ArtifactError(f"{files.folder} has only a part of the dictionary of words; build the shard again")
        arrays = shard_format.WordArrays.open(files)
        first = terms - (len(arrays.word_offsets) - 1)
        if first < 0:
            raise ArtifactError(f"{files.folder} has more words than terms with postings; build the shard again")
        return cls(files, arrays, first)

    def ids(self, names: Sequence[str]) -> np.typing.NDArray[np.int32]:
        """Return int32 [n]: the id of each word in the shard's postings, -1 for a word that no document holds."""
        return np.array([self._id(name) for name in names], np.int32)

    def _id(self, name: str) -> int:
        found = self._cache.get(name)
        if found is None:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            found = self._cache[name] = self._find(name.encode())
        return found

    def _find(self, word: bytes) -> int:
        offsets, text = self._verified
        places = range(len(offsets) - 1)
        place = bisect.bisect_left(places, word, key=lambda at: bytes(text[offsets[at] : offsets[at + 1]]))
        found = place < len(places) and text[offsets[place] : offsets[place + 1]] == word
        return self.first + place if found else -1

    @cached_property
    def _verified(self) -> tuple[memoryview, memoryview]:
        """Offsets and bytes, verified as a whole: a binary search touches pages everywhere."""
        for name in shard_format.WORD_ARRAYS:
            array = getattr(self._arrays, name)
            self._files.verify_items(array, shard_format.array_name(name), 0, len(array))
        return self._arrays.word_offsets.data, self._arrays.word_bytes.data


class ForwardCopy:
    """The vectors of one opened shard. Safe to share between threads."""

    def __init__(self, files: pages.MappedFiles, arrays: shard_format.ImpactArrays, *, vocabulary_size: int) -> None:
        """Read vectors from mapped arrays."""
        self._files = files
        self._arrays = arrays
        self._vocabulary_size = vocabulary_size

    def score(
        self,
        ordinals: np.typing.NDArray[np.int64],
        ids: np.typing.NDArray[np.int32],
        weights: np.typing.NDArray[np.float32],
        *,
        dk: int,
        vectors: Vectors = (),
    ) -> tuple[np.typing.NDArray[np.float32], np.typing.NDArray[np.uint16]]:
        """Score given documents.

        Returns:
            Scores float32 [n] and shared terms uint16 [n].
        """
        if vectors:
            offsets, terms, impacts = vectors
            ordinals = np.arange(len(ordinals))
        else:
            self.verify(ordinals)
            a = self._arrays
            offsets, terms, impacts = a.forward_offsets, a.forward_terms, a.forward_impacts
        scores, counts = np.empty(len(ordinals), np.float32), np.empty(len(ordinals), np.uint16)
        if native.score(offsets, terms, impacts, ordinals, dk, ids, weights, self._vocabulary_size, scores, counts) < 0:
            raise postings.damaged_arrays(self._files)
        return scores, counts

    def gather(self, ordinals: np.typing.NDArray[np.int64], dk: int) -> Vectors:
        """Copy the vectors of given documents next to each other.

        Scattered over the mapped arrays, each vector would cost several reads of memory.

        Returns:
            Offsets uint32 [n + 1], terms and impacts.
        """
        self.verify(ordinals)
        a = self._arrays
        starts = a.forward_offsets[ordinals].astype(np.int64)
        offsets, places = sparse.put_together(starts, np.minimum(a.forward_offsets[ordinals + 1] - starts, dk))
        return offsets.astype(np.uint32), a.forward_terms[places], a.forward_impacts[places]

    def vector(self, ordinal: int, dk: int) -> dict[int, int]:
        """Return impact by term id of a document, its ``dk`` heaviest terms."""
        self.verify(np.array([ordinal]))
        a = self._arrays
        start, stop = a.forward_offsets[ordinal : ordinal + 2].tolist()
        stop = min(stop, start + dk)
        return dict(zip(a.forward_terms[start:stop].tolist(), a.forward_impacts[start:stop].tolist(), strict=True))

    def verify(self, ordinals: np.typing.NDArray[np.int64]) -> None:
        """Verify everything that the vectors of some documents lie on."""
        a, verify = self._arrays, self._files.verify_rows
        verify(a.forward_offsets, shard_format.array_name("forward_offsets"), ordinals, ordinals + 2)
        starts, stops = (a.forward_offsets[places].astype(np.int64) for places in (ordinals, ordinals + 1))
        if len(ordinals) and not (starts.min() >= 0 and stops.max() <= len(a.forward_terms)):
            raise postings.damaged_arrays(self._files)
        verify(a.forward_terms, shard_format.array_name("forward_terms"), starts, stops)
        verify(a.forward_impacts, shard_format.array_name("forward_impacts"), starts, stops)
