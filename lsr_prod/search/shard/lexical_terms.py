"""Words of a shard that have postings: their ids, by binary search in the mapped dictionary."""

import bisect
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.pages import MappedFiles
from lsr_prod.formats.shard import WORD_ARRAYS, WordArrays, array_name

_CACHED = 1 << 14  # words whose ids are cached: a query looks up each of its words twice, and queries share words


class LexicalTerms:
    """Dictionary of the words of one opened shard. Safe to share between threads.

    Attributes:
        first: id of the first word in the postings; the ids of the encoder's terms lie below it.
    """

    def __init__(self, files: MappedFiles, arrays: WordArrays, first: int) -> None:
        """Look words up in ``arrays``."""
        self.first = first
        self._files = files
        self._arrays = arrays
        self._cache: dict[str, int] = {}

    @classmethod
    def open(cls, files: MappedFiles, terms: int) -> "LexicalTerms | None":
        """Open the dictionary of a shard; return None if the shard was built without BM25."""
        present = [array_name(name) in files for name in WORD_ARRAYS]
        if not any(present):
            return None
        if not all(present):
            raise ArtifactError(f"{files.folder} has only a part of the dictionary of words; build the shard again")
        arrays = WordArrays.open(files)
        first = terms - (len(arrays.word_offsets) - 1)
        if first < 0:
            raise ArtifactError(f"{files.folder} has more words than terms with postings; build the shard again")
        return cls(files, arrays, first)

    def ids(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
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
        for name in WORD_ARRAYS:
            array = getattr(self._arrays, name)
            self._files.verify_items(array, array_name(name), 0, len(array))
        return self._arrays.word_offsets.data, self._arrays.word_bytes.data
