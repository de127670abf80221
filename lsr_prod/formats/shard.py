"""Layout of a shard: the names and arrays that the builder writes and the Searcher maps.

Documents have ordinals 0..N-1, assigned so that similar documents are close, and form document blocks of ``block_size``
ordinals. The postings of a term are contiguous and form *runs*: a run is the postings of one term in one block. Every
array is a little-endian ``.npy`` that is mapped, never read whole:

::

    impacts/term_runs.npy        uint32 [T + 1]  index of the first run of a term
    impacts/term_postings.npy    int64  [T + 1]  index of its first posting
    impacts/run_gaps.npy         uint8  [R]  block of a run minus the block of the previous run of the term (minus -1
                                             for its first run); 255: skip 255 blocks, no run
    impacts/run_counts.npy       uint8 or uint16 [R]  postings of the run minus 1
    impacts/run_maxima.npy       uint8  [R]  bound: largest impact of the run
    impacts/ids.npy              uint8 or uint16 [P]  ordinal minus the first one of the block, ascending in a run
    impacts/impacts.npy          uint8  [P]
    impacts/term_ids.npy         int64  [T + 1]  compressed only: index of a term's first byte in ``ids``
    impacts/term_impacts.npy     int64  [T + 1]  compressed only: index of its first impact
    impacts/id_order.npy         uint32 [N]  ordinals by ascending doc_id
    impacts/id_rank.npy          uint32 [N]  rank of a document by ascending doc_id; breaks ties in score
    impacts/word_offsets.npy     int64  [W + 1]  with BM25 only: words of the shard, sorted by their UTF-8 bytes
    impacts/word_bytes.npy       uint8  [B]
    impacts/forward_offsets.npy  int64  [N + 1]  forward copy: all stored terms of a document, heaviest first
    impacts/forward_terms.npy    uint16 or int32 [F]
    impacts/forward_impacts.npy  uint8  [F]
    tantivy/                     fields: ``terms`` (u64, indexed), ``ordinal`` (u64, fast), ``text`` (stemmed)
    docs.arrow                   Arrow IPC file: doc_id, stored fields, attributes; record batches of 16,384 rows
    text_terms.npy               uint32 [V + 1]  only with inference-free queries: number of documents that have each
                                                 output term in their text (``formats.term_weights``); read whole
    page_digests.bin             sha256 of every page of the files above that are mapped, see ``formats.pages``

Ids and counts are uint8 if a block has up to 256 documents. Term ids are uint16 if the vocabulary is small enough.
Compressed shards have fewer bytes in two arrays: the ids of a run of more than 32 documents are a bitmap of 32 bytes
(id p is bit p % 8 of byte p // 8), and the impact of a run of one document is in ``run_maxima`` only.

With BM25 the words of the text have postings too: word ``i`` of the shard is the term ``V + i``, so that T = V + W, and
its impacts are those of ``formats.term_weights``. The forward arrays have only the terms of the encoder.
"""

import io
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.pages import MappedFiles

IMPACTS_FOLDER = "impacts"
TANTIVY_FOLDER = "tantivy"
DOCUMENTS_FILE = "docs.arrow"
TEXT_TERMS_FILE = "text_terms.npy"
BATCH_ROWS = 16384
TERMS_FIELD = "terms"
ORDINAL_FIELD = "ordinal"
TEXT_FIELD = "text"

TermIds = npt.NDArray[np.uint16] | npt.NDArray[np.int32]
LocalIds = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
_COMPRESSED_ARRAYS = ("term_ids", "term_impacts")
_BOUNDS = ("term_runs", "term_postings", *_COMPRESSED_ARRAYS, "forward_offsets")
NO_RUN = 255  # in run_gaps: skip that many blocks, no run
BITMAP_ABOVE = 32  # documents of a run; also bytes of the bitmap that replaces their ids above it


def term_dtype(vocabulary_size: int) -> np.dtype[np.uint16] | np.dtype[np.int32]:
    """Return the type of a term id on disk."""
    return np.dtype("<u2") if vocabulary_size <= 1 << 16 else np.dtype("<i4")


def local_dtype(block_size: int) -> np.dtype[np.uint8] | np.dtype[np.uint16]:
    """Return the type of the id of a document in its block, and of the count of a run minus 1."""
    return np.dtype("u1") if block_size <= 1 << 8 else np.dtype("<u2")


def array_name(name: str) -> str:
    """Return the path of array ``name`` in the folder of a shard."""
    return f"{IMPACTS_FOLDER}/{name}.npy"


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    """Return the content of an ``.npy`` file."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def is_mapped(path: str) -> bool:
    """Return whether a file of a shard is mapped and verified page by page; all others are verified whole."""
    return path == DOCUMENTS_FILE or path.startswith(f"{IMPACTS_FOLDER}/")


@dataclass(frozen=True, slots=True)
class ImpactArrays:
    """Memory-mapped arrays of a shard; see the module for shapes."""

    term_runs: npt.NDArray[np.uint32]
    term_postings: npt.NDArray[np.int64]
    run_gaps: npt.NDArray[np.uint8]
    run_counts: LocalIds
    run_maxima: npt.NDArray[np.uint8]
    term_ids: npt.NDArray[np.int64]
    term_impacts: npt.NDArray[np.int64]
    ids: LocalIds
    impacts: npt.NDArray[np.uint8]
    id_order: npt.NDArray[np.uint32]
    id_rank: npt.NDArray[np.uint32]
    forward_offsets: npt.NDArray[np.int64]
    forward_terms: TermIds
    forward_impacts: npt.NDArray[np.uint8]

    @property
    def compressed(self) -> bool:
        """True if runs of ids can be bitmaps."""
        postings = int(self.term_postings[-1])
        return len(self.ids) != postings or len(self.impacts) != postings

    @classmethod
    def open(cls, files: MappedFiles, *, documents: int, block_size: int) -> "ImpactArrays":
        """Return the arrays among the mapped files of a shard."""
        compressed = array_name("term_ids") in files
        # Uncompressed, every posting has one item in each array.
        names = {} if compressed else dict.fromkeys(_COMPRESSED_ARRAYS, "term_postings")
        stored = [array_name(names.get(field.name, field.name)) for field in fields(cls)]
        arrays = cls(*map(files.array, stored))
        for field, name in zip(fields(cls), stored, strict=True):
            array = getattr(arrays, field.name)
            if field.name in _BOUNDS and len(array):  # the last items decide how all others are read
                files.verify_items(array, name, len(array) - 1, len(array))
        if not arrays._fits(documents, block_size):
            raise ArtifactError(f"the impact arrays of {files.folder} contradict each other; build the shard again")
        return arrays

    def _fits(self, documents: int, block_size: int) -> bool:
        """Return whether types and lengths agree, so that no index is out of bounds."""
        term, local = self.forward_terms.dtype, local_dtype(block_size)
        byte, word, wide = np.dtype(np.uint8), np.dtype(np.uint32), np.dtype(np.int64)
        types = (word, wide, byte, local, byte, wide, wide, local, byte, word, word, wide, term, byte)
        return (
            0 < block_size <= 1 << 16
            and tuple(getattr(self, field.name).dtype for field in fields(self)) == types
            and term in (np.uint16, np.int32)
            and len(self.term_runs) == len(self.term_postings) == len(self.term_ids) == len(self.term_impacts) > 0
            and self.term_runs[-1] == len(self.run_gaps) == len(self.run_counts) == len(self.run_maxima)
            and self.term_postings[-1] < 1 << 32
            and self.term_ids[-1] == len(self.ids) <= self.term_postings[-1]
            and self.term_impacts[-1] == len(self.impacts) <= self.term_postings[-1]
            and len(self.id_order) == len(self.id_rank) == documents
            and len(self.forward_offsets) == documents + 1
            and self.forward_offsets[-1] == len(self.forward_terms) == len(self.forward_impacts)
        )


@dataclass(frozen=True, slots=True)
class WordArrays:
    """Memory-mapped dictionary of the words of a shard; see the module for shapes."""

    word_offsets: npt.NDArray[np.int64]
    word_bytes: npt.NDArray[np.uint8]

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
MATCHING_ARRAYS = _ALL[: _ALL.index("id_order")]
