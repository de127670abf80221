"""The words of a shard: their ids in its postings, by binary search in the mapped dictionary."""

import bisect
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.pages import MappedFiles
from lsr_prod.formats.shard import BITMAP_ABOVE, NO_RUN, WORD_ARRAYS, ImpactArrays, WordArrays, array_name

__all__ = ["Words", "posting_impact"]

_KEPT = 1 << 14  # words whose ids are kept: queries ask for the same ones again, and each of them twice


class Words:
    """The dictionary of one opened shard. Safe to share between threads.

    Attributes:
        first: id of the first word in the postings; below it are the encoder's terms.
    """

    def __init__(self, files: MappedFiles, arrays: WordArrays, first: int) -> None:
        """Look words up in ``arrays``.

        Args:
            files: of the shard.
            arrays: the dictionary.
            first: id of the first word in the postings.
        """
        self.first = first
        self._files = files
        self._arrays = arrays
        self._asked: dict[str, int] = {}

    @classmethod
    def open(cls, files: MappedFiles, terms: int) -> "Words | None":
        """The dictionary among a shard's mapped files; None if it was built without BM25.

        Args:
            files: of the shard.
            terms: T, terms and words that have postings.

        Raises:
            ArtifactError: an array is missing, or the arrays contradict each other.
        """
        there = [array_name(name) in files for name in WORD_ARRAYS]
        if not any(there):
            return None
        if not all(there):
            raise ArtifactError(f"{files.folder} has half a dictionary of words; build the shard again")
        arrays = WordArrays.open(files)
        first = terms - (len(arrays.word_offsets) - 1)
        if first < 0:
            raise ArtifactError(f"{files.folder} has more words than postings for them; build the shard again")
        return cls(files, arrays, first)

    def ids(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
        """int32 [n]: the id of each word in the shard's postings, -1 if no document of it holds the word.

        Raises:
            DigestMismatchError: the dictionary is damaged.
        """
        return np.array([self._id(name) for name in names], np.int32)

    def _id(self, name: str) -> int:
        found = self._asked.get(name)
        if found is None:
            if len(self._asked) >= _KEPT:
                self._asked.clear()
            found = self._asked[name] = self._find(name.encode())
        return found

    def _find(self, word: bytes) -> int:
        offsets, text = self._verified
        places = range(len(offsets) - 1)
        place = bisect.bisect_left(places, word, key=lambda at: bytes(text[offsets[at] : offsets[at + 1]]))
        there = place < len(places) and text[offsets[place] : offsets[place + 1]] == word
        return self.first + place if there else -1

    @cached_property
    def _verified(self) -> tuple[memoryview, memoryview]:
        """Offsets and bytes, read wholly once: a binary search touches pages everywhere."""
        for name in WORD_ARRAYS:
            array = getattr(self._arrays, name)
            self._files.verify_items(array, array_name(name), 0, len(array))
        return self._arrays.word_offsets.data, self._arrays.word_bytes.data


def posting_impact(arrays: ImpactArrays, block_size: int, term: int, ordinal: int) -> int:
    """The impact of one term in one document's postings; 0 if it is not there.

    Args:
        arrays: of the shard, verified where the term lies.
        block_size: documents in a block.
        term: its id.
        ordinal: the document.
    """
    runs = slice(int(arrays.term_runs[term]), int(arrays.term_runs[term + 1]))
    gaps = arrays.run_gaps[runs]
    blocks = np.cumsum(gaps, dtype=np.int64)[gaps != NO_RUN] - 1
    counts = arrays.run_counts[runs][gaps != NO_RUN].astype(np.int64) + 1
    block, place = divmod(ordinal, block_size)
    run = int(np.searchsorted(blocks, block))
    if run == len(blocks) or blocks[run] != block:
        return 0
    compressed = arrays.compressed
    bitmaps = compressed & (counts > BITMAP_ABOVE)
    id_at = int(arrays.term_ids[term]) + int(np.where(bitmaps, BITMAP_ABOVE, counts)[:run].sum())
    impact_at = int(arrays.term_impacts[term]) + int(np.where(compressed & (counts == 1), 0, counts)[:run].sum())
    places: npt.NDArray[Any] = arrays.ids[id_at : id_at + int(counts[run])]
    if bitmaps[run]:
        bitmap = arrays.ids[id_at : id_at + BITMAP_ABOVE].view(np.uint8)
        places = np.flatnonzero(np.unpackbits(bitmap, bitorder="little"))
    at = np.flatnonzero(places == place)
    if not len(at):
        return 0
    if compressed and counts[run] == 1:
        return int(arrays.run_maxima[runs][gaps != NO_RUN][run])
    return int(arrays.impacts[impact_at + at[0]])
