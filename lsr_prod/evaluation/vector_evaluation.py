"""Quality and cost of vectors at levels of pruning, thresholds and hybrid weights, with in-memory indexes."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np

from lsr_prod.evaluation.measures import depth_of, measure, parse_measures
from lsr_prod.evaluation.systems import Answer, EncodedQuery
from lsr_prod.indexing.in_memory import InMemoryIndex, InMemoryResult, build_in_memory
from lsr_prod.inference import BundleEncoder
from lsr_prod.inference.terms.words import TermReader
from lsr_prod.search.hybrid import WeighedWords
from lsr_prod.search.query.search_request import Hybrid
from lsr_prod.search.query.sparse_query import SparseQuery, TermWeights, Vocabulary, read_learned_weights
from lsr_prod.storage.disk import scratch_folder
from lsr_prod.storage.formats.bundle_format import Bundle, EncoderCard, Kind, read_vocabulary
from lsr_prod.storage.formats.sparse import SparseBatch


@dataclass(frozen=True, slots=True)
class Encoded:
    """Ids, vectors and texts."""

    ids: Sequence[str]  # distinct
    vectors: SparseBatch  # one for each id, in that order, not pruned
    # one for each id, whose words are matched at levels with a hybrid weight; None: there is no such level
    texts: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """One setting of index and search."""

    qk: int  # heaviest terms kept per query; 0: all
    dk: int  # heaviest terms kept per document; 0: all
    threshold: float = 0.0  # share of the query terms that a document must have
    # weight of the BM25 score of the words in a sum with the encoder's score; None: no words
    hybrid_weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelReport(Level):
    """Result for one level."""

    measures: dict[str, float]  # name of the measure -> mean over the judged queries
    # name of the measure -> value of every judged query, in the order of ``Encoded.ids``, for paired tests of two
    # models or levels
    by_query: dict[str, np.typing.NDArray[np.float64]]
    l0_query: float  # mean number of terms per query after pruning
    l0_document: float  # mean number of terms per document after pruning
    # papers/esplade-pretraining, eq. 1, after pruning, postings of words included; independent of the threshold.
    flops: float
    matched: float  # mean number of documents with the required terms per query
    bytes: int = 0  # size of the postings
    # milliseconds of matching and ranking, median over the queries: time of the processor in this thread, which
    # other processes disturb less than the time of the clock
    match_p50_ms: float = 0.0


def evaluate(
    documents: Encoded,
    queries: Encoded,
    qrels: Sequence[ir_measures.Qrel],
    *,
    levels: Sequence[tuple[int, int]],
    thresholds: Sequence[float],
    measures: Sequence[str],
    scratch: Path | None = None,
) -> list[LevelReport]:
    """Run every query at every level and threshold, with one index per ``dk``.

    Returns:
        One report per level and threshold, in the given order; thresholds vary fastest.
    """
    asked = [Level(qk, dk, threshold) for qk, dk in levels for threshold in thresholds]
    found = dict(measure_levels(documents, queries, qrels, asked, measures=measures, scratch=scratch))
    return [found[level] for level in asked]


def measure_levels(
    documents: Encoded,
    queries: Encoded,
    qrels: Sequence[ir_measures.Qrel],
    levels: Sequence[Level],
    *,
    measures: Sequence[str],
    scratch: Path | None = None,
) -> Iterator[tuple[Level, LevelReport]]:
    """Yield every distinct level with its report, ordered by index: one per ``dk``, and one more with words."""
    parsed = parse_measures("measures", measures)
    known = set(queries.ids)
    judged = [qrel for qrel in qrels if qrel.query_id in known]
    terms = 1 + max(int(batch.terms.max(initial=0)) for batch in (documents.vectors, queries.vectors))
    groups: dict[tuple[int, bool], list[Level]] = {}
    for level in dict.fromkeys(levels):
        groups.setdefault((level.dk, level.hybrid_weight is not None), []).append(level)
    for (dk, with_words), group in groups.items():
        texts = documents.texts if with_words else None
        with scratch_folder(prefix="lsr-scratch-", parent=scratch) as folder:
            index = build_in_memory(folder, documents.ids, documents.vectors, vocabulary_size=terms, dk=dk, texts=texts)
            words = [index.weigh_words(text) for text in queries.texts or ()] if with_words else []
            for level in group:
                vectors = queries.vectors.top(level.qk) if level.qk else queries.vectors
                yield level, _report(index, Encoded(queries.ids, vectors), words, judged, parsed, level)


def encode_with_bundle(folder: Path, texts: Sequence[str], kind: Kind, documents: Sequence[str]) -> SparseBatch:
    """Encode texts as the encode job and ``Searcher`` do."""
    card = EncoderCard.load(folder)
    if kind == "document" or not card.inference_free:
        return BundleEncoder(folder, kind=kind).encode(texts, kind=kind)
    reader, names = TermReader.open(folder), read_vocabulary(folder)
    if card.query_encoder == "learned":
        weights = read_learned_weights(folder, Bundle.load(folder).files, Vocabulary(names), verify=False)
    else:
        weights = TermWeights.of_counts(reader.count(documents), names)
    return weigh_queries(texts, reader, weights, len(names))


def weigh_queries(texts: Sequence[str], reader: TermReader, weights: TermWeights, size: int) -> SparseBatch:
    """Encode inference-free queries over V = ``size`` terms.

    A query word outside an output vocabulary of words counts in |q|, and matches nothing: it gets an id of its own,
    V or more.
    """
    rows = []
    for text in texts:
        query = weights.weigh(*reader.query(text))
        absent = query.ids < 0
        ids = np.where(absent, size + np.cumsum(absent) - 1, query.ids).astype(np.int32)
        rows.append(SparseBatch(np.array([0, len(ids)], np.int64), ids, query.weights))
    return SparseBatch.concatenate(rows)


@dataclass(frozen=True, slots=True)
class _InMemory:
    """A system that searches an in-memory index at one level."""

    index: InMemoryIndex
    level: Level
    words: Mapping[str, WeighedWords]  # query id -> weighted words of its text; empty: the level has no words
    k: int

    def answer(self, query: EncodedQuery) -> Answer:
        (matched,) = self.count([query])  # warms the caches for the timed search
        start = time.thread_time()
        found = self._search(query, self.k)
        took = (time.thread_time() - start) * 1e3
        return Answer(list(zip(found.ids, found.scores, strict=True)), matched, took, None)

    def count(self, queries: Sequence[EncodedQuery]) -> list[int]:
        return [self._search(query, 0).matched for query in queries]

    def _search(self, query: EncodedQuery, k: int) -> InMemoryResult:
        weight = self.level.hybrid_weight
        return self.index.search(
            query.vector.ids,
            query.vector.weights,
            threshold=self.level.threshold,
            k=k,
            words=self.words.get(query.query_id),
            hybrid=None if weight is None else Hybrid(words=weight),
        )


def _report(
    index: InMemoryIndex,
    queries: Encoded,
    words: Sequence[WeighedWords],
    qrels: Sequence[ir_measures.Qrel],
    measures: Mapping[str, Any],
    level: Level,
) -> LevelReport:
    by_id = dict(zip(queries.ids, words, strict=False))
    vectors = (SparseQuery(*queries.vectors.row(i), ()) for i in range(len(queries.ids)))
    encoded = [EncodedQuery(query_id, "", vector, 0.0) for query_id, vector in zip(queries.ids, vectors, strict=True)]
    found = measure(_InMemory(index, level, by_id, depth_of(measures)), encoded, qrels, measures)
    touched = sum(index.touched_postings(query.vector.ids, by_id.get(query.query_id)) for query in encoded)
    return LevelReport(
        **asdict(level),
        measures=found.means,
        by_query=found.by_query,
        l0_query=len(queries.vectors.terms) / len(queries.ids),
        l0_document=float(index.lengths.mean()),
        flops=touched / (len(queries.ids) * len(index.lengths)),
        matched=sum(answer.matched or 0 for answer in found.answers) / len(queries.ids),
        bytes=index.posting_bytes,
        match_p50_ms=float(np.median([answer.match_ms or 0.0 for answer in found.answers])),
    )
