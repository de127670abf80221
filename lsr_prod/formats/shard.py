"""Inside a shard: the names and arrays that the builder writes and the Searcher maps.

Documents are numbered 0..N-1 by rising ``doc_id`` (the ordinal) and cut into blocks of ``block_size``. Every array is a
little-endian ``.npy`` that is mapped, never read whole:

::

    impacts/directory.npy        int64  [B + 1]  where the terms of block b begin in ``terms``
    impacts/terms.npy            uint16 or int32 [T]  term ids, rising inside a block
    impacts/starts.npy           uint32 [T + B]  where a term's postings begin, counted from the block's base; each
                                                 block ends with one more entry, the number of its postings
    impacts/bases.npy            int64  [B + 1]  where the postings of block b begin
    impacts/ids.npy              uint16 [P]  ordinal minus the block's first, rising inside a term
    impacts/impacts.npy          uint8  [P]
    impacts/forward_offsets.npy  int64  [N + 1]  the document-ordered copy: all stored terms, heaviest first
    impacts/forward_terms.npy    uint16 or int32 [F]
    impacts/forward_impacts.npy  uint8  [F]
    tantivy/                     fields: ``terms`` (u64, indexed), ``ordinal`` (u64, fast), ``text`` (stemmed)
    docs.arrow                   Arrow IPC file: doc_id and stored fields, one record batch a block

Term ids are uint16 where the vocabulary allows it.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtefactError

__all__ = [
    "DOCUMENTS_FILE",
    "IMPACTS_FOLDER",
    "ORDINAL_FIELD",
    "TANTIVY_FOLDER",
    "TERMS_FIELD",
    "TEXT_FIELD",
    "ImpactArrays",
    "array_path",
    "term_dtype",
]

IMPACTS_FOLDER = "impacts"
TANTIVY_FOLDER = "tantivy"
DOCUMENTS_FILE = "docs.arrow"
TERMS_FIELD = "terms"
ORDINAL_FIELD = "ordinal"
TEXT_FIELD = "text"

TermIds = npt.NDArray[np.uint16] | npt.NDArray[np.int32]


def term_dtype(vocabulary_size: int) -> np.dtype[np.uint16] | np.dtype[np.int32]:
    """The type of a term id on disk."""
    return np.dtype("<u2") if vocabulary_size <= 1 << 16 else np.dtype("<i4")


def array_path(shard: Path, name: str) -> Path:
    """The file of array ``name`` in the folder of a shard."""
    return shard / IMPACTS_FOLDER / f"{name}.npy"


@dataclass(frozen=True, slots=True)
class ImpactArrays:
    """The impact arrays of a shard, memory-mapped; see the module for shapes."""

    documents: int
    block_size: int
    directory: npt.NDArray[np.int64]
    terms: TermIds
    starts: npt.NDArray[np.uint32]
    bases: npt.NDArray[np.int64]
    ids: npt.NDArray[np.uint16]
    impacts: npt.NDArray[np.uint8]
    forward_offsets: npt.NDArray[np.int64]
    forward_terms: TermIds
    forward_impacts: npt.NDArray[np.uint8]

    @classmethod
    def open(cls, shard: Path, *, documents: int, block_size: int) -> "ImpactArrays":
        """Map the arrays of the shard in folder ``shard``.

        Raises:
            ArtefactError: an array is missing, is no array, or the lengths contradict each other.
        """

        def array(name: str) -> npt.NDArray[np.generic]:
            path = array_path(shard, name)
            try:
                # A plain view of the map: subclasses of ndarray cost the kernel's dispatcher time.
                return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
            except (OSError, ValueError) as error:
                raise ArtefactError(f"{path} cannot be read ({error}); build the shard again") from error

        names = list(cls.__slots__)[2:]
        arrays = cls(documents, block_size, *map(array, names))  # type: ignore[arg-type]
        arrays.check(shard)
        return arrays

    def check(self, shard: Path) -> None:
        """Hold the arrays' types and lengths against each other, so that no index leaves its array.

        Raises:
            ArtefactError: they do not fit.
        """
        blocks = -(-self.documents // self.block_size)
        term = self.terms.dtype
        types = [np.int64, term, np.uint32, np.int64, np.uint16, np.uint8, np.int64, term, np.uint8]
        found = [getattr(self, name).dtype for name in list(self.__slots__)[2:]]
        fits = (
            found == types
            and term in (np.uint16, np.int32)
            and len(self.directory) == len(self.bases) == blocks + 1
            and self.directory[-1] == len(self.terms) == len(self.starts) - blocks
            and self.bases[-1] == len(self.ids) == len(self.impacts)
            and len(self.forward_offsets) == self.documents + 1
            and self.forward_offsets[-1] == len(self.forward_terms) == len(self.forward_impacts)
        )
        if not fits:
            raise ArtefactError(f"the impact arrays of {shard} contradict each other; build the shard again")
