"""One opened shard: matching by the kernel, ids and stored fields from the mapped Arrow file."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.errors import ArtefactError
from lsr_prod.formats.index import ShardManifest
from lsr_prod.formats.shard import DOCUMENTS_FILE, ImpactArrays
from lsr_prod.search.query import SparseQuery

__all__ = ["Accumulators", "OpenShard", "ShardHits"]


@dataclass(frozen=True, slots=True)
class Accumulators:
    """The working memory of one thread: scores float32 and counts uint16, zeros between queries."""

    scores: npt.NDArray[np.float32]
    counts: npt.NDArray[np.uint16]

    @classmethod
    def allocate(cls) -> "Accumulators":
        """Zeros, 384 KiB, whatever the size of the index."""
        from lsr_prod.search.kernel import ACCUMULATORS

        return cls(np.zeros(ACCUMULATORS, np.float32), np.zeros(ACCUMULATORS, np.uint16))


@dataclass(frozen=True, slots=True)
class ShardHits:
    """The best documents of one shard, by falling score, ties by rising ordinal.

    Attributes:
        matched: documents that share enough terms.
        ordinals: int64 [n].
        scores: float32 [n].
        overlaps: uint16 [n].
    """

    matched: int
    ordinals: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    overlaps: npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard's maps; see ``formats.shard`` for the layout.

    Attributes:
        folder: where it lies.
        manifest: its manifest.
        arrays: the impact arrays.
        batches: ids and stored fields, one batch a block.
        ids: the buffers of each batch's ids: int64 offsets, and UTF-8.
    """

    folder: Path
    manifest: ShardManifest
    arrays: ImpactArrays
    batches: tuple[pa.RecordBatch, ...]
    ids: tuple[tuple[memoryview, memoryview], ...]

    @classmethod
    def open(cls, folder: Path, manifest: ShardManifest) -> "OpenShard":
        """Map the shard; nothing is read but headers.

        Raises:
            ArtefactError: a file is missing or has another size than the manifest says, or the arrays do not fit.
        """
        for file in manifest.files:
            path = folder / file.path
            if not path.is_file() or path.stat().st_size != file.size:
                raise ArtefactError(f"{path} is missing or cut short; build or fetch the index again")
        arrays = ImpactArrays.open(folder, documents=manifest.documents, block_size=manifest.block_size)
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(folder / DOCUMENTS_FILE)))
            batches = tuple(reader.get_batch(i) for i in range(reader.num_record_batches))
        except (pa.ArrowInvalid, OSError) as error:
            raise ArtefactError(f"{folder / DOCUMENTS_FILE} cannot be read ({error}); build the shard again") from error
        if sum(batch.num_rows for batch in batches) != manifest.documents:
            raise ArtefactError(f"{folder / DOCUMENTS_FILE} does not hold {manifest.documents} documents")
        return cls(
            folder, manifest, arrays, batches, tuple(_string_buffers(batch.column("doc_id")) for batch in batches)
        )

    def match(
        self, query: SparseQuery, weights: npt.NDArray[np.float32], required: int, k: int, memory: Accumulators
    ) -> ShardHits:
        """Count the documents with at least ``required`` of the query's terms, and rank the best ``k``.

        Args:
            query: the terms.
            weights: float32 [q], what one impact unit adds to a score.
            required: 1 or more.
            k: 0 or more.
            memory: of the calling thread.

        Raises:
            ArtefactError: the arrays are damaged.
        """
        from lsr_prod.search.kernel import scan  # numba is imported by the first query, not by the module

        a, k = self.arrays, min(k, self.manifest.documents)
        scores, ordinals, overlaps = np.empty(k, np.float32), np.empty(k, np.int64), np.empty(k, np.uint16)
        index = (a.directory, a.terms, a.starts, a.bases, a.ids, a.impacts, a.documents, a.block_size)
        matched, filled = scan(
            *index, query.ids, weights, required, memory.scores, memory.counts, scores, ordinals, overlaps
        )
        if matched < 0:
            raise ArtefactError(
                f"the impact arrays of {self.folder} are damaged; open with verify=True to see the file"
            )
        order = np.lexsort((ordinals[:filled], -scores[:filled]))
        return ShardHits(matched, ordinals[order], scores[order], overlaps[order])

    def doc_id(self, ordinal: int) -> str:
        """The id of a document."""
        block, row = divmod(ordinal, self.manifest.block_size)
        offsets, text = self.ids[block]
        return str(text[offsets[row] : offsets[row + 1]], "utf-8")

    def fields(self, ordinal: int, names: Sequence[str]) -> dict[str, str | None]:
        """Stored fields of a document."""
        block, row = divmod(ordinal, self.manifest.block_size)
        return {name: self.batches[block].column(name)[row].as_py() for name in names}

    def ordinal(self, doc_id: str) -> int | None:
        """The ordinal of a document, or None if it is not in this shard."""
        at = bisect.bisect_left(range(self.manifest.documents), doc_id, key=self.doc_id)
        return at if at < self.manifest.documents and self.doc_id(at) == doc_id else None

    def postings_of(self, ordinal: int, dk: int) -> dict[int, int]:
        """Impact by term id of a document: the terms that stand in the postings."""
        start, stop = self.arrays.forward_offsets[ordinal : ordinal + 2]
        stop = min(stop, start + dk)
        terms, impacts = self.arrays.forward_terms[start:stop], self.arrays.forward_impacts[start:stop]
        return dict(zip(terms.tolist(), impacts.tolist(), strict=True))

    def add_document_frequencies(self, frequencies: npt.NDArray[np.int64]) -> None:
        """Add how many of this shard's documents hold each term to ``frequencies``, int64 [V]."""
        a = self.arrays
        for block in range(len(a.bases) - 1):
            first, last = int(a.directory[block]), int(a.directory[block + 1])
            # A term stands once in a block, so that plain indexing adds every count.
            frequencies[a.terms[first:last]] += np.diff(a.starts[first + block : last + block + 1]).astype(np.int64)


def _string_buffers(column: pa.Array) -> tuple[memoryview, memoryview]:
    """Offsets and text of a ``large_string`` column: a Python string comes out of them twice as fast as by scalars."""
    _, offsets, text = column.buffers()
    return memoryview(offsets).cast("q"), memoryview(text or b"")
