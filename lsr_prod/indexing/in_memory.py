"""An index of vectors in memory, with the arrays and the kernel of a published one, for the time of one measurement."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.formats.digest import digest_files
from lsr_prod.formats.index import ShardManifest
from lsr_prod.formats.shard import BATCH_ROWS, DOCUMENTS_FILE, term_dtype
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.formats.table import quantise
from lsr_prod.indexing.plan import Layout
from lsr_prod.indexing.shard import write_arrays
from lsr_prod.indexing.vectors import Vectors
from lsr_prod.search.part import Part, ShardQuery
from lsr_prod.search.query import MAX_TERMS, SparseQuery, required_terms
from lsr_prod.search.shard import OpenShard
from lsr_prod.search.workspace import Workspace
from lsr_prod.tables.impact_scale import impact_scale

__all__ = ["Ranked", "ScratchIndex"]

_BITS = 8
_BLOCK = 256  # documents


@dataclass(frozen=True, slots=True)
class Ranked:
    """The answer to one query.

    Attributes:
        ids: of the documents, by falling score, ties by rising id.
        scores: of each.
        matched: documents that share enough terms, all of them counted.
    """

    ids: list[str]
    scores: list[float]
    matched: int


class ScratchIndex:
    """One shard in a folder, without what only readers of documents need: stored fields and the Boolean index.

    Attributes:
        impact_step: weight of one impact unit.
        lengths: int64 [N], terms of each document after pruning, by rising id.
        document_frequencies: int64 [V], documents that hold each term.
    """

    def __init__(
        self, part: Part, *, impact_step: float, lengths: npt.NDArray[np.int64], frequencies: npt.NDArray[np.int64]
    ) -> None:
        """Search an open shard; ``build`` makes one."""
        self.impact_step = impact_step
        self.lengths = lengths
        self.document_frequencies = frequencies
        self._part = part

    @classmethod
    def build(cls, folder: Path, ids: Sequence[str], vectors: SparseBatch, *, terms: int, dk: int) -> Self:
        """Prune, quantise to 8 bits and write the arrays.

        The heaviest weight of all documents fixes the scale, as that of the probe does for a sparse table; pruning
        leaves it, so that indexes of the same vectors have one scale whatever ``dk`` is.

        Args:
            folder: an empty one; it can be deleted when the index is no longer used.
            ids: N distinct document ids.
            vectors: N of them.
            terms: V; every term id lies below it.
            dk: heaviest terms kept of a document; 0: all.
        """
        order = np.argsort(np.array([id_.encode() for id_ in ids], dtype=object), kind="stable")
        pruned = vectors.take(order).top(dk) if dk else vectors.take(order)
        step = impact_scale(pruned.weights, _BITS, documents=len(pruned)).step
        impacts, _ = quantise(pruned.weights, step, _BITS)
        rows = Vectors(pruned.offsets, pruned.terms.astype(term_dtype(terms)), impacts.astype(np.uint8))
        lengths = rows.lengths
        layout = Layout(_BLOCK, "id", max(1, int(lengths.max(initial=1))), terms, (), ())
        _, postings = write_arrays(folder, rows, np.arange(len(rows), dtype=np.uint32), layout)
        _write_ids(folder, [ids[i] for i in order])
        files = digest_files(folder, [path for path in folder.rglob("*") if path.is_file()])
        manifest = ShardManifest("", len(rows), postings, _BLOCK, "base", {}, files)
        shard = OpenShard(folder, manifest, lazy=False)
        part = Part(shard, None, dk=layout.dk, vocabulary_size=terms)
        return cls(part, impact_step=step, lengths=lengths, frequencies=shard.document_frequencies())

    def search(
        self, terms: npt.NDArray[np.int32], weights: npt.NDArray[np.float32], *, threshold: float, k: int
    ) -> Ranked:
        """The best documents for a query, as a ``Searcher`` finds them.

        Args:
            terms: int32 [q], heaviest first, ties by rising id. Beyond the 65,535 that a search takes at most the
                lightest are left out: a model has so many only before it is trained.
            weights: float32 [q].
            threshold: share of the query's terms that a document has to hold.
            k: documents wanted.

        Raises:
            QueryError: the weights are so large that a score would not fit into float32.
        """
        query = SparseQuery(terms[:MAX_TERMS], weights[:MAX_TERMS], ())
        required = required_terms(len(query.ids), overlap_threshold=threshold, min_terms=1)
        asked = ShardQuery(
            query.ids,
            query.scaled(self.impact_step),
            np.ones(len(query.ids), np.uint8),
            required,
            k,
            exhaustive=True,
        )
        hits = self._part.match(asked, Workspace.of_thread(), 0.0)
        doc_id = self._part.shard.documents.doc_id
        return Ranked([doc_id(ordinal) for ordinal in hits.ordinals], hits.scores, hits.matched)


def _write_ids(folder: Path, ids: Sequence[str]) -> None:
    """Write the file that names the documents, by ordinal."""
    table = pa.table({"doc_id": pa.array(ids, pa.large_string())})
    with pa.OSFile(str(folder / DOCUMENTS_FILE), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=BATCH_ROWS)
