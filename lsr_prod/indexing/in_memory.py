"""Build a searchable index of vectors in memory, for evaluation: no sparse table, no job, no publication."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from lsr_prod.encoding.tables.impact_scale import impact_scale
from lsr_prod.indexing import base_shard, index_plan
from lsr_prod.indexing.impacts.postings import WordSpill, average_length_of
from lsr_prod.indexing.impacts.vectors import Vectors, VectorSpill
from lsr_prod.inference.terms.analysis import distinct_words
from lsr_prod.search.hybrid import WeighedWords, with_words
from lsr_prod.search.query.search_request import Hybrid
from lsr_prod.search.query.sparse_query import MAX_TERMS, SparseQuery, required_terms
from lsr_prod.search.shard import open_shard, shard_reader
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.storage.formats import digests, index_format, sparse, table_format
from lsr_prod.storage.formats.shard_format import (
    BATCH_ROWS,
    DOCUMENTS_FILE,
    IMPACTS_FOLDER,
    MATCHING_ARRAYS,
    WORD_ARRAYS,
    array_name,
    term_dtype,
)
from lsr_prod.storage.formats.term_weights import inverse_frequencies

_BITS = 8
_WORDS = "words"  # folder of temporary files


def build_in_memory(
    folder: Path,
    ids: Sequence[str],
    vectors: sparse.SparseBatch,
    *,
    vocabulary_size: int,
    dk: int,
    texts: Sequence[str] | None = None,
) -> "InMemoryIndex":
    """Prune vectors, quantize them to 8 bits and index them with the arrays and the kernel of a published index.

    The largest weight of all documents fixes the impact scale, as the largest weight of the probe does for a sparse
    table. Pruning keeps the largest weight of a document, so the scale does not depend on ``dk``.
    """
    order = np.argsort(np.array([id_.encode() for id_ in ids], dtype=object), kind="stable")
    pruned = vectors.take(order).top(dk) if dk else vectors.take(order)
    step = impact_scale(pruned.weights, _BITS, documents=len(pruned)).step
    impacts, _ = table_format.quantize(pruned.weights, step, _BITS)
    terms = pruned.terms.astype(term_dtype(vocabulary_size))
    rows = Vectors(pruned.offsets.astype(np.uint32), terms, impacts.astype(np.uint8))
    lengths = rows.lengths
    layout = index_plan.ShardLayout(max(1, int(lengths.max(initial=1))), vocabulary_size, (), ())
    (folder / IMPACTS_FOLDER).mkdir()
    forward = VectorSpill(folder / IMPACTS_FOLDER, vocabulary_size, prefix="forward_")
    forward.add(rows)
    words = None
    if texts is not None:
        spill = WordSpill(folder / _WORDS, average_length_of(texts))
        spill.add([texts[i] for i in order])
        words = spill.finish()
    postings = base_shard.write_arrays(folder, forward.finish(), layout, words)
    table = pa.table({"doc_id": pa.array([ids[i] for i in order], pa.large_string())})
    with pa.OSFile(str(folder / DOCUMENTS_FILE), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=BATCH_ROWS)
    shutil.rmtree(folder / _WORDS, ignore_errors=True)
    files = digests.digest_folder(folder)
    manifest = index_format.ShardManifest("", len(rows), postings, "base", {}, files)
    shard = open_shard.OpenShard(folder, manifest, lazy=False)
    reader = shard_reader.ShardReader(shard, None, dk=layout.dk)
    matching = set(map(array_name, (*MATCHING_ARRAYS, *WORD_ARRAYS)))
    return InMemoryIndex(
        reader,
        impact_step=step,
        lengths=lengths,
        frequencies=shard.postings.document_frequencies(),
        posting_bytes=sum(file.size for file in files if file.path in matching),
    )


@dataclass(frozen=True, slots=True)
class InMemoryResult:
    """Result of one query."""

    ids: list[str]  # document ids, by falling score; ties by rising id
    scores: list[float]  # score of each document
    matched: int  # number of documents that share enough terms with the query


class InMemoryIndex:
    """One shard without stored fields and without a Tantivy index; ``build_in_memory`` makes it.

    Attributes:
        impact_step: weight of one impact unit.
        lengths: int64 [N], terms of each document after pruning, by rising id.
        document_frequencies: int64 [V], number of documents that hold each term; with words, int64 [V + W].
        posting_bytes: size of the arrays that matching reads: postings of terms, and postings and names of words.
    """

    def __init__(
        self,
        reader: shard_reader.ShardReader,
        *,
        impact_step: float,
        lengths: np.typing.NDArray[np.int64],
        frequencies: np.typing.NDArray[np.int64],
        posting_bytes: int,
    ) -> None:
        self.impact_step = impact_step
        self.lengths = lengths
        self.document_frequencies = frequencies
        self.posting_bytes = posting_bytes
        self._reader = reader

    def weigh_words(self, text: str) -> WeighedWords:
        """Weight the words of a query's text by their inverse document frequency, as ``Searcher`` does."""
        names = distinct_words(text)
        return WeighedWords(tuple(names), inverse_frequencies(len(self.lengths), self._word_frequencies(names)))

    def touched_postings(self, terms: np.typing.NDArray[np.int32], words: WeighedWords | None = None) -> int:
        """Return the total length of the postings lists of a query's terms and words."""
        touched = int(self.document_frequencies[terms].sum(dtype=np.int64))
        return touched + (0 if words is None else int(self._word_frequencies(words.names).sum()))

    def search(
        self,
        terms: np.typing.NDArray[np.int32],
        weights: np.typing.NDArray[np.float32],
        *,
        threshold: float,
        k: int,
        words: WeighedWords | None = None,
        hybrid: Hybrid | None = None,
    ) -> InMemoryResult:
        """Return the best documents for a query: the same as ``Searcher`` returns for a published index."""
        query = SparseQuery(np.ascontiguousarray(terms[:MAX_TERMS]), np.ascontiguousarray(weights[:MAX_TERMS]), ())
        shard_query = ShardQuery(
            query.ids,
            query.scaled(self.impact_step),
            np.ones(len(query.ids), np.uint8),
            required_terms(len(query.ids), overlap_threshold=threshold, min_terms=1),
            k,
        )
        if words is not None:
            shard_query = with_words(shard_query, words, hybrid, counted=threshold == 0)
        hits = self._reader.match(shard_query, 0.0)
        doc_id = self._reader.shard.documents.doc_id
        return InMemoryResult([doc_id(ordinal) for ordinal in hits.ordinals], hits.scores, hits.matched)

    def _word_frequencies(self, names: Sequence[str]) -> np.typing.NDArray[np.int64]:
        """Return int64 [t]: number of documents that have each word."""
        ids = self._reader.word_ids(names)
        frequencies = np.zeros(len(names), np.int64)
        frequencies[ids >= 0] = self._reader.shard.postings.frequencies(ids[ids >= 0])
        return frequencies
