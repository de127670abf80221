"""``Searcher``: one index version, opened for queries from any number of threads."""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import LineageError, QueryError
from lsr_prod.formats.bundle import Bundle, read_vocabulary
from lsr_prod.formats.digest import verify_files
from lsr_prod.formats.index import IndexVersion, Publication, latest_publication, load_version
from lsr_prod.search.explain import explain_document
from lsr_prod.search.merge import fetch_hits, merge_shards
from lsr_prod.search.query import SparseQuery, check_k, check_text, required_terms
from lsr_prod.search.result import Explanation, QueryTerm, SearchResult
from lsr_prod.search.shard import Accumulators, OpenShard

if TYPE_CHECKING:
    from lsr_prod.inference import BundleEncoder
    from lsr_prod.search.boolean import BooleanShard

__all__ = ["Searcher"]

Vector = Mapping[str | int, float]


class Searcher:
    """A published index version. Safe to share between threads; every answer comes from this one version.

    Attributes:
        publication: what made the version current when it was opened.
        version: the version: lineage, settings, counts.
        documents: N, over all shards.
        postings: (document, term) pairs, over all shards.
    """

    def __init__(self, index: Path, publication: Publication, version: IndexVersion, encoder_threads: int) -> None:
        self.publication = publication
        self.version = version
        self.documents = version.documents
        self.postings = sum(shard.postings for shard in version.shards)
        self._index = index
        self._encoder_threads = encoder_threads
        self._bundle = index / "bundles" / version.bundle_digest
        self._shards = [OpenShard.open(index / "shards" / shard.sha, shard) for shard in version.shards]
        self._sha = publication.version
        self._of_thread = threading.local()
        self._lock = threading.Lock()
        self._encoder: BundleEncoder | None = None

    @classmethod
    def open(cls, index: str | Path, *, verify: bool = False, encoder_threads: int = 1) -> "Searcher":
        """Open the current version of an index; files are mapped, not read.

        Args:
            index: folder of the index.
            verify: compare every file of the version with its sha256 first (reads all of it).
            encoder_threads: ONNX Runtime threads that encode one query.

        Raises:
            PublicationError: nothing is published there.
            ArtefactError: the version is incomplete, damaged or of another format.
        """
        folder = Path(index).absolute()
        publication = latest_publication(folder)
        version = load_version(folder, publication.version)
        bundle = Bundle.load(folder / "bundles" / version.bundle_digest, verify=verify)
        if bundle.digest != version.bundle_digest:
            raise LineageError(f"the bundle in {folder} is not the one that made the index; build the index again")
        if verify:
            for shard in version.shards:
                verify_files(folder / "shards" / shard.sha, shard.files)
        return cls(folder, publication, version, encoder_threads)

    def refresh(self) -> "Searcher":
        """This Searcher if its version is still current, else a new one on the version that is."""
        if latest_publication(self._index).version == self._sha:
            return self
        return Searcher.open(self._index, encoder_threads=self._encoder_threads)

    def search(
        self,
        text: str,
        k: int = 10,
        *,
        overlap_threshold: float = 0.0,
        min_terms: int = 1,
        qk: int | None = None,
        fields: Sequence[str] = (),
    ) -> SearchResult:
        """Encode a text and search.

        A document matches if it shares at least max(1, min_terms, ceil(overlap_threshold x |q|)) of the query's terms,
        where |q| counts the terms after ``qk``, those that no document has included. Threshold 0 is off. An empty
        query matches nothing.

        Args:
            text: the query, prompt excluded.
            k: hits at most, 0..10,000; fewer if fewer documents match.
            overlap_threshold: share of the query's terms, 0..1.
            min_terms: the same as a count.
            qk: terms of the query, heaviest first; None keeps all.
            fields: stored fields to return with the hits.

        Raises:
            QueryError: an argument is outside its range.
            MissingExtraError: ONNX Runtime is not installed; ``search_vector`` works without it.
        """
        return self.search_batch(
            [text], k, overlap_threshold=overlap_threshold, min_terms=min_terms, qk=qk, fields=fields
        )[0]

    def search_batch(
        self,
        texts: Sequence[str],
        k: int = 10,
        *,
        overlap_threshold: float = 0.0,
        min_terms: int = 1,
        qk: int | None = None,
        fields: Sequence[str] = (),
    ) -> list[SearchResult]:
        """``search`` for many texts, encoded together; ``encode_ms`` is the mean of a text.

        Raises:
            QueryError: an argument is outside its range.
            MissingExtraError: ONNX Runtime is not installed.
        """
        start = time.perf_counter()
        queries = self._encode(texts, qk)
        encode_ms = _ms(start) / max(1, len(texts))
        return [self._answer(query, k, overlap_threshold, min_terms, fields, encode_ms) for query in queries]

    def search_vector(
        self,
        vector: Vector,
        k: int = 10,
        *,
        overlap_threshold: float = 0.0,
        min_terms: int = 1,
        qk: int | None = None,
        fields: Sequence[str] = (),
    ) -> SearchResult:
        """Search with weights given; needs no ONNX Runtime. Other arguments as in ``search``.

        Args:
            vector: weight by term, a string of the output vocabulary or its id. A weight of 0 is no term; a string
                outside the vocabulary counts in |q| and matches nothing.
            k: hits at most.
            overlap_threshold: share of the query's terms.
            min_terms: the same as a count.
            qk: terms of the query.
            fields: stored fields.

        Raises:
            QueryError: a weight is NaN, infinite or negative, an id is out of range, or another argument is.
        """
        start = time.perf_counter()
        query = SparseQuery.from_vector(vector, self.vocabulary).top(qk)
        return self._answer(query, k, overlap_threshold, min_terms, fields, _ms(start))

    def explain(self, query: str | Vector, doc_id: str, *, qk: int | None = None) -> Explanation:
        """Why a document has its score for a query, whether or not it would pass a threshold.

        Args:
            query: a text, or a vector as in ``search_vector``.
            doc_id: the document.
            qk: terms of the query.

        Raises:
            QueryError: there is no such document, or the query is outside its range.
            MissingExtraError: a text is given and ONNX Runtime is not installed.
        """
        sparse = (
            self._encode([query], qk)[0]
            if isinstance(query, str)
            else SparseQuery.from_vector(query, self.vocabulary).top(qk)
        )
        places = ((shard, shard.ordinal(doc_id)) for shard in self._shards)
        shard, ordinal = next(((shard, at) for shard, at in places if at is not None), (None, 0))
        if shard is None:
            raise QueryError(f"there is no document {doc_id!r} in this version; give an id of the index")
        return explain_document(sparse, shard, ordinal, dk=self.version.dk, impact_step=self.version.impact_step)

    def bm25(self, text: str, k: int = 10, *, fields: Sequence[str] = ()) -> SearchResult:
        """Rank by Tantivy's BM25 over the text fields, any token matching; the baseline beside the sparse vectors.

        Document frequencies are those of a shard, so that with several shards scores are comparable only roughly.

        Raises:
            QueryError: ``k`` or a field is outside its range, or the index has no text fields.
        """
        from lsr_prod.search.boolean import analyze

        check_k(k)
        self._check_fields(fields)
        if not self.version.text_fields:
            raise QueryError("this index has no text for BM25; build it with index.text_fields")
        start = time.perf_counter()
        tokens = analyze(text)
        analyzed = time.perf_counter()
        matched, ranked = 0, []
        for number, shard in enumerate(self._boolean):
            found, best = shard.bm25(tokens, k)
            matched += found
            ranked += [(score, number, ordinal, 0) for score, ordinal in best]
        query = tuple(QueryTerm(token, 1.0) for token in tokens)
        return self._finish(ranked, k, matched, 1, query, fields, (analyzed - start) * 1e3, analyzed)

    def match_tantivy(self, terms: Iterable[int], required: int = 1) -> set[str]:
        """Ids of all documents that hold at least ``required`` of the terms, by Tantivy's minimum-should-match.

        The oracle of the kernel: the same set, slower.

        Args:
            terms: output-vocabulary ids.
            required: 1 or more.
        """
        ids = sorted(set(terms))
        return {shard.shard.doc_id(ordinal) for shard in self._boolean for ordinal in shard.match(ids, required)}

    def document_frequency(self, term: str | int) -> int:
        """Documents whose postings hold a term, a string or an id; 0 for one outside the vocabulary."""
        term_id = self._term_ids.get(term, -1) if isinstance(term, str) else int(term)
        return int(self._frequencies[term_id]) if 0 <= term_id < len(self._frequencies) else 0

    @cached_property
    def vocabulary(self) -> list[str]:
        """The V terms, by id."""
        return read_vocabulary(self._bundle)

    @property
    def encoder(self) -> "BundleEncoder":
        """The encoder of queries, opened on first use.

        Raises:
            MissingExtraError: ONNX Runtime is not installed.
        """
        with self._lock:
            if self._encoder is None:
                from lsr_prod.inference import BundleEncoder

                self._encoder = BundleEncoder(self._bundle, threads=self._encoder_threads)
            return self._encoder

    @cached_property
    def _term_ids(self) -> dict[str, int]:
        return {term: i for i, term in enumerate(self.vocabulary)}

    @cached_property
    def _frequencies(self) -> npt.NDArray[np.int64]:
        frequencies = np.zeros(len(self.vocabulary), np.int64)
        for shard in self._shards:
            shard.add_document_frequencies(frequencies)
        return frequencies

    @cached_property
    def _boolean(self) -> "list[BooleanShard]":
        from lsr_prod.search.boolean import BooleanShard

        return [BooleanShard.open(shard) for shard in self._shards]

    def _encode(self, texts: Sequence[str], qk: int | None) -> list[SparseQuery]:
        for text in texts:
            check_text(text)
        encoder = self.encoder
        batch = encoder.encode(texts, kind="query")
        names = encoder.vocabulary
        rows = (batch.row(i) for i in range(len(batch)))
        return [SparseQuery(ids, weights, tuple(names[i] for i in ids.tolist())).top(qk) for ids, weights in rows]

    def _answer(
        self,
        query: SparseQuery,
        k: int,
        overlap_threshold: float,
        min_terms: int,
        fields: Sequence[str],
        encode_ms: float,
    ) -> SearchResult:
        check_k(k)
        self._check_fields(fields)
        required = required_terms(len(query.ids), overlap_threshold=overlap_threshold, min_terms=min_terms)
        start = time.perf_counter()
        weights = query.scaled(self.version.impact_step)
        memory = self._accumulators()
        matched, ranked = 0, []
        for number, shard in enumerate(self._shards):
            found = shard.match(query, weights, required, k, memory)
            matched += found.matched
            scores, ordinals, overlaps = found.scores.tolist(), found.ordinals.tolist(), found.overlaps.tolist()
            ranked += [(s, number, o, c) for s, o, c in zip(scores, ordinals, overlaps, strict=True)]
        terms = tuple(QueryTerm(term, weight) for term, weight in zip(query.terms, query.weights.tolist(), strict=True))
        return self._finish(ranked, k, matched, required, terms, fields, encode_ms, start)

    def _finish(
        self,
        found: Iterable[tuple[float, int, int, int]],
        k: int,
        matched: int,
        required: int,
        query: tuple[QueryTerm, ...],
        fields: Sequence[str],
        encode_ms: float,
        start: float,
    ) -> SearchResult:
        best = merge_shards(self._shards, found, k)
        match_ms, start = _ms(start), time.perf_counter()
        hits = fetch_hits(self._shards, best, fields)
        return SearchResult(hits, matched, required, query, self._sha, encode_ms, match_ms, _ms(start))

    def _accumulators(self) -> Accumulators:
        memory: Accumulators | None = getattr(self._of_thread, "memory", None)
        if memory is None:
            memory = self._of_thread.memory = Accumulators.allocate()
        return memory

    def _check_fields(self, fields: Sequence[str]) -> None:
        for name in fields:
            if name not in self.version.stored_fields:
                stored = ", ".join(self.version.stored_fields) or "none"
                raise QueryError(f"the index does not store the field {name!r}; it stores: {stored}")


def _ms(start: float) -> float:
    return (time.perf_counter() - start) * 1e3
