"""Layout of a shard: the names and arrays that the builder writes and the Searcher maps.

Documents have ordinals 0..N-1 by rising doc_id, and form windows of 16,384 ordinals. The postings of a term are
contiguous and form *runs*: a run is the postings of one term in one window. Every array is a little-endian ``.npy``
that is mapped, never read whole:

::

    impacts/term_runs.npy        uint32 [T + 1]  index of the first run of a term
    impacts/term_postings.npy    uint32 [T + 1]  index of its first posting
    impacts/term_ids.npy         uint32 [T + 1]  index of its first item in ``ids``
    impacts/term_tenths.npy      uint8  [T]  its 10th largest impact, 0 if it has fewer: k documents reach its score
    impacts/term_hundredths.npy  uint8  [T]  its 100th largest impact
    impacts/run_windows.npy      uint16 [R]  window of a run, ascending in a term
    impacts/run_counts.npy       uint16 [R]  postings of the run minus 1
    impacts/ids.npy              uint16 [I]  ordinal minus the first one of the window, ascending in a run; a run of
                                             more than 1,024 documents has a bitmap of 1,024 items instead: id p is
                                             bit p % 16 of item p // 16
    impacts/impacts.npy          uint8  [P]
    impacts/word_offsets.npy     int64  [W + 1]  with BM25 only: words of the shard, sorted by their UTF-8 bytes
    impacts/word_bytes.npy       uint8  [B]
    impacts/forward_offsets.npy  uint32 [N + 1]  forward copy: all stored terms of a document, heaviest first
    impacts/forward_terms.npy    uint16 or int32 [F]
    impacts/forward_impacts.npy  uint8  [F]
    tantivy/                     fields: ``ordinal`` (u64, fast), ``text`` (stemmed), attributes
    docs.arrow                   Arrow IPC file: doc_id, stored fields, attributes; record batches of 16,384 rows
    text_terms.npy               uint32 [V + 1]  only with inference-free queries: number of documents that have each
                                                 output term in their text (``formats.term_weights``); read whole
    page_digests.bin             sha256 of every page of the files above that are mapped, see ``formats.pages``

Term ids are uint16 if the vocabulary is small enough.

With BM25 the words of the text have postings too: word ``i`` of the shard is the term ``V + i``, so that T = V + W, and
its impacts are those of ``formats.term_weights``. The forward arrays have only the terms of the encoder.
"""

from dataclasses import dataclass, fields

import numpy as np

from lsr_prod.errors import ArtifactError
from lsr_prod.storage.formats.pages import MappedFiles

IMPACTS_FOLDER = "impacts"
TANTIVY_FOLDER = "tantivy"
DOCUMENTS_FILE = "docs.arrow"
TEXT_TERMS_FILE = "text_terms.npy"
BATCH_ROWS = 16384
ORDINAL_FIELD = "ordinal"
TEXT_FIELD = "text"

TermIds = np.typing.NDArray[np.uint16] | np.typing.NDArray[np.int32]
_BOUNDS = ("term_runs", "term_postings", "term_ids", "forward_offsets")
WINDOW = 1 << 14  # documents of a window
DENSE = WINDOW // 16  # documents of a run above which its ids are a bitmap; also items of the bitmap
MAX_ITEMS = (1 << 32) - 1  # of an array of a shard


def term_dtype(vocabulary_size: int) -> np.dtype[np.uint16] | np.dtype[np.int32]:
    """Return the type of a term id on disk."""
    return np.dtype("<u2") if vocabulary_size <= 1 << 16 else np.dtype("<i4")


def array_name(name: str) -> str:
    """Return the path of array ``name`` in the folder of a shard."""
    return f"{IMPACTS_FOLDER}/{name}.npy"


def is_mapped(path: str) -> bool:
    """Return whether a file of a shard is mapped and verified page by page; all others are verified whole."""
    return path == DOCUMENTS_FILE or path.startswith(f"{IMPACTS_FOLDER}/")


@dataclass(frozen=True, slots=True)
class ImpactArrays:
    """Memory-mapped arrays of a shard; see the module for shapes."""

    term_runs: np.typing.NDArray[np.uint32]
    term_postings: np.typing.NDArray[np.uint32]
    term_ids: np.typing.NDArray[np.uint32]
    term_tenths: np.typing.NDArray[np.uint8]
    term_hundredths: np.typing.NDArray[np.uint8]
    run_windows: np.typing.NDArray[np.uint16]
    run_counts: np.typing.NDArray[np.uint16]
    ids: np.typing.NDArray[np.uint16]
    impacts: np.typing.NDArray[np.uint8]
    forward_offsets: np.typing.NDArray[np.uint32]
    forward_terms: TermIds
    forward_impacts: np.typing.NDArray[np.uint8]

    @classmethod
    def open(cls, files: MappedFiles, *, documents: int) -> "ImpactArrays":
        """Return the arrays among the mapped files of a shard."""
        if array_name("run_windows") not in files:
            raise ArtifactError(f"{files.folder} was built by another release of lsr_prod; build the index again")
        arrays = cls(*(files.array(array_name(field.name)) for field in fields(cls)))
        for name in _BOUNDS:
            array = getattr(arrays, name)
            if len(array):  # the last items decide how all others are read
                files.verify_items(array, array_name(name), len(array) - 1, len(array))
        if not arrays._fits(documents):
            raise ArtifactError(f"the impact arrays of {files.folder} contradict each other; build the shard again")
        return arrays

    def _fits(self, documents: int) -> bool:
        """Return whether types and lengths agree, so that no index is out of bounds."""
        term = self.forward_terms.dtype
        byte, half, word = np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32)
        types = (word, word, word, byte, byte, half, half, half, byte, word, term, byte)
        return (
            tuple(getattr(self, field.name).dtype for field in fields(self)) == types
            and term in (np.uint16, np.int32)
            and len(self.term_runs) == len(self.term_postings) == len(self.term_ids) == len(self.term_tenths) + 1
            and len(self.term_tenths) == len(self.term_hundredths)
            and self.term_runs[-1] == len(self.run_windows) == len(self.run_counts)
            and self.term_postings[-1] == len(self.impacts)
            and self.term_ids[-1] == len(self.ids)
            and len(self.forward_offsets) == documents + 1
            and self.forward_offsets[-1] == len(self.forward_terms) == len(self.forward_impacts)
        )


@dataclass(frozen=True, slots=True)
class WordArrays:
    """Memory-mapped dictionary of the words of a shard; see the module for shapes."""

    word_offsets: np.typing.NDArray[np.int64]
    word_bytes: np.typing.NDArray[np.uint8]

    @classmethod
    def open(cls, files: MappedFiles) -> "WordArrays":
        """Return the arrays among the mapped files of a shard."""
        offsets, text = (files.array(array_name(name)) for name in WORD_ARRAYS)
        fine = offsets.dtype == np.int64 and text.dtype == np.uint8 and len(offsets) > 0 and offsets[-1] == len(text)
        if not fine:
            raise ArtifactError(f"the words of {files.folder} contradict each other; build the shard again")
        return cls(offsets, text)


WORD_ARRAYS = tuple(field.name for field in fields(WordArrays))
_ALL = tuple(field.name for field in fields(ImpactArrays))
FORWARD_ARRAYS = tuple(name for name in _ALL if name.startswith("forward_"))
MATCHING_ARRAYS = _ALL[: _ALL.index("forward_offsets")]
# Files that hits are read from, a few bytes each; the postings of a term are read in sequence.
SCATTERED = frozenset((DOCUMENTS_FILE, *map(array_name, FORWARD_ARRAYS)))
