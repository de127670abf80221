"""``Searcher``: the current version of an index, open for queries from any number of threads."""

import asyncio
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypedDict, Unpack

from lsr_prod.errors import QueryError
from lsr_prod.formats.index import IndexVersion
from lsr_prod.formats.publication import Publication
from lsr_prod.search.candidates import Shards
from lsr_prod.search.executor import execute_bm25, execute_query, milliseconds_since
from lsr_prod.search.explain import explain_document
from lsr_prod.search.hybrid import check_words, weigh_words
from lsr_prod.search.location import LocalIndex, RemoteIndex, locate
from lsr_prod.search.metrics import Observer
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.query.request import Hybrid, Options, Request
from lsr_prod.search.query.sparse_query import SparseQuery, check_text
from lsr_prod.search.query_encoder import QueryEncoder
from lsr_prod.search.result import Explanation, SearchResult
from lsr_prod.search.snapshot import Snapshot, Verify

if TYPE_CHECKING:
    from lsr_prod.inference import BundleEncoder

__all__ = ["OpenSettings", "Searcher", "Vector"]

Vector = Mapping[str | int, float]


class OpenSettings(TypedDict, total=False):
    """Keywords of ``Searcher.open``."""

    verify: Verify
    encoder_threads: int
    bundle: str | Path | None
    observer: Observer | None
    cache: str | Path | None
    cache_bytes: int | None
    storage_options: Mapping[str, str] | None


class Searcher:
    """The current version of an index. Safe to share between threads.

    Every answer comes from one version, the one that was current when its query began. ``refresh`` follows the latest
    publication; the version before is unmapped when the last query that reads it has returned.

    A document matches if it shares at least max(1, min_terms, ceil(overlap_threshold x |q|)) of the query's terms,
    where |q| counts the terms after ``qk``, those that no document has included. An empty query matches nothing. Hits
    come by falling score, ties by rising id. The keywords of all searches are those of ``Request``.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        location: LocalIndex | RemoteIndex | None = None,
        verify: Verify = "lazy",
        encoder_threads: int = 1,
        bundle: Path | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Search an open version; ``Searcher.open`` opens one."""
        self._location = location or LocalIndex(snapshot.index)
        self._snapshot = snapshot
        self._observer = observer
        self._verify: Verify = "lazy" if verify is True else verify
        self._encoder = QueryEncoder(threads=encoder_threads, verify=verify is not False, bundle=bundle)
        self._refresh_lock = threading.Lock()

    @classmethod
    def open(
        cls,
        index: str | Path,
        *,
        verify: Verify = "lazy",
        encoder_threads: int = 1,
        bundle: str | Path | None = None,
        observer: Observer | None = None,
        cache: str | Path | None = None,
        cache_bytes: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Open the current version of an index; files are mapped, not read.

        Args:
            index: folder of the index, or URI of a remote one (s3://, gs://, az://).
            verify: "lazy": every page is held against its checksum when it is read first; True: every file against its
                sha256 now (reads all of it), and pages of later versions lazily; False: nothing.
            encoder_threads: ONNX Runtime threads that encode one query.
            bundle: folder of the encoder, instead of the copy in the index; one that did not make the index is refused
                by the first query.
            observer: is told about every query and version.
            cache: folder on a local disk where the versions of a remote index are kept, verified as they come.
            cache_bytes: quota of that folder; None: none.
            storage_options: of the object store.

        Raises:
            PublicationError: nothing is published there.
            ArtifactError: the version is incomplete, damaged or of another format.
            QueryError: the index is remote, and there is no cache.
            StorageError: the object store cannot be reached, or the version does not fit into the cache.
        """
        location = locate(index, cache, cache_bytes, storage_options)
        folder, publication = location.fetch()
        snapshot = Snapshot(folder, publication, verify=verify)
        searcher = cls(
            snapshot,
            location=location,
            verify=verify,
            encoder_threads=encoder_threads,
            bundle=Path(bundle) if bundle is not None else None,
            observer=observer,
        )
        searcher._watch(snapshot)
        return searcher

    def refresh(self) -> bool:
        """Follow the latest publication.

        Returns:
            Whether the version changed. Queries that run go on in the version that they began in.

        Raises:
            ArtifactError: the new version is incomplete or damaged; the Searcher stays where it is.
        """
        with self._refresh_lock:
            before = self._snapshot
            if self._location.head().version == before.publication.version:
                return False
            folder, publication = self._location.fetch()
            # Shards of both versions are not opened again, unless their files may go with the folder.
            kept = before if before.index == folder else None
            self._snapshot = Snapshot(folder, publication, verify=self._verify, before=kept)
            self._watch(self._snapshot)
            return True

    def _watch(self, snapshot: Snapshot) -> None:
        """Say that a version is current, and give its folder back when the last query that reads it has returned."""
        weakref.finalize(snapshot, self._location.release, snapshot.index)
        if self._observer is not None:
            publication = snapshot.publication
            self._observer.opened(publication.version, publication.number, snapshot.version.documents)

    @property
    def snapshot(self) -> Snapshot:
        """The version that the next query reads."""
        return self._snapshot

    @property
    def publication(self) -> Publication:
        """What made the version current when it was opened."""
        return self._snapshot.publication

    @property
    def version(self) -> IndexVersion:
        """The version: lineage, settings, counts."""
        return self._snapshot.version

    @property
    def documents(self) -> int:
        """Documents that can be found."""
        return self.version.documents

    @property
    def postings(self) -> int:
        """(document, term) pairs, those of deleted documents included."""
        return sum(shard.postings for shard in self.version.shards)

    def search(self, text: str, k: int = 10, **options: Unpack[Options]) -> SearchResult:
        """Encode a text and search.

        Args:
            text: the query, prompt excluded.
            k: hits at most, 0..10,000; fewer if fewer documents match.
            **options: see ``Request``.

        Raises:
            QueryError: an argument is outside its range, or ``text`` is no text.
            ArtifactError: the index is damaged.
            MissingExtraError: ONNX Runtime is not installed.
        """
        return self.search_batch([text], k, **options)[0]

    def search_batch(self, texts: Sequence[str], k: int = 10, **options: Unpack[Options]) -> list[SearchResult]:
        """Encode many texts in one batch and search for each; as ``search`` otherwise, from one version.

        Scores can differ from those of single queries in the last digits: an encoder's sums depend on the batch.
        ``encode_ms`` is an equal share of the batch's time.
        """
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise QueryError(f"the batch {shorten(texts)} is no list of texts; give one")
        with self._observed():
            request, start, snapshot = Request(k=k, **options), time.perf_counter(), self._snapshot
            queries = self._encoder.encode(snapshot, texts)
            encode_ms = milliseconds_since(start) / max(1, len(texts))
            asked = zip(queries, texts, strict=True)
            return [self._answer(snapshot, query, request, encode_ms, text) for query, text in asked]

    def search_vector(
        self, vector: Vector, k: int = 10, *, text: str | None = None, **options: Unpack[Options]
    ) -> SearchResult:
        """Search with weights given; needs no ONNX Runtime.

        Args:
            vector: weight by term, a string of the output vocabulary or its id. A weight of 0 is no term; a string
                outside the vocabulary counts in |q| and matches nothing.
            k: hits at most.
            text: whose words a hybrid search reads; only with ``hybrid``.
            **options: see ``Request``.

        Raises:
            QueryError: a weight is NaN, infinite or negative, an id is out of range, or an argument is.
            ArtifactError: the index is damaged.
        """
        with self._observed():
            request, start, snapshot = Request(k=k, **options), time.perf_counter(), self._snapshot
            query = SparseQuery.from_vector(vector, snapshot.vocabulary)
            check_words(text, request.hybrid)
            return self._answer(snapshot, query, request, milliseconds_since(start), text)

    async def search_async(self, text: str, k: int = 10, **options: Unpack[Options]) -> SearchResult:
        """``search`` in a thread of asyncio's pool: the event loop goes on."""
        return await asyncio.to_thread(self.search, text, k, **options)

    def count(self, query: str | Vector, *, text: str | None = None, **options: Unpack[Options]) -> int:
        """Documents that match a text or a vector; every one of them is counted. ``text``: see ``search_vector``.

        Raises:
            QueryError: the query or an argument is outside its range.
            MissingExtraError: a text is given and ONNX Runtime is not installed.
        """
        options["count"] = True
        if isinstance(query, str):
            return self.search(query, 0, **options).matched
        return self.search_vector(query, 0, text=text, **options).matched

    def explain(
        self,
        query: str | Vector,
        doc_id: str,
        *,
        qk: int | None = None,
        hybrid: Hybrid | None = None,
        text: str | None = None,
    ) -> Explanation:
        """Why a document has its score for a query, whether or not it would pass a threshold.

        Args:
            query: a text, or a vector as in ``search_vector``.
            doc_id: the document.
            qk: terms of the query.
            hybrid: as in the search; sums only, ranks have no parts.
            text: whose words count beside a vector; only with ``hybrid``.

        Raises:
            QueryError: there is no such document, or the query is outside its range.
            MissingExtraError: a text is given and ONNX Runtime is not installed.
        """
        snapshot = self._snapshot
        if isinstance(query, str):
            sparse, text = self._encoder.encode(snapshot, [query])[0], query
        else:
            sparse = SparseQuery.from_vector(query, snapshot.vocabulary)
            check_words(text, hybrid)
        words = None
        if hybrid is not None and text is not None:
            words = weigh_words(self._shards(snapshot), snapshot.version, text)
        return explain_document(sparse.top(qk), snapshot, doc_id, hybrid, words)

    def bm25(self, text: str, k: int = 10, *, count: bool = False, fields: Sequence[str] = ()) -> SearchResult:
        """Rank by BM25 over the text fields, any word matching; the baseline beside the sparse vectors.

        An index that was built with ``index.bm25`` answers from its arrays, with document frequencies of all shards.
        Else Tantivy answers, with those of each shard: scores of several shards are comparable only roughly.

        Args:
            text: the query.
            k: hits at most.
            count: count every match; Tantivy always does.
            fields: stored fields and attributes to return with the hits.

        Raises:
            QueryError: ``k`` or a field is outside its range, or the index has no text fields.
        """
        with self._observed():
            check_text(text)
            snapshot = self._snapshot
            request = Request(k=k, fields=fields, count=count)
            result = execute_bm25(snapshot, self._shards(snapshot), text, request)
            if self._observer is not None:
                self._observer.answered(result)
            return result

    def match_boolean(self, query: str) -> set[str]:
        """Ids of all documents that a Boolean query in Tantivy's syntax finds, over text and attributes.

        Args:
            query: such as ``lock AND NOT thread``, ``(json OR xml) AND year:[2020 TO *]``; see ``boolean_query``.

        Raises:
            QueryError: the query cannot be read, or asks for what the index does not hold.
        """
        from lsr_prod.search.baseline import match_query

        check_text(query)
        return match_query(self._snapshot, query)

    def match_tantivy(self, terms: Iterable[int], required: int = 1) -> set[str]:
        """Ids of all documents that hold at least ``required`` of the terms, by Tantivy's minimum-should-match.

        The oracle of the kernel: the same set, slower.

        Args:
            terms: output-vocabulary ids.
            required: 1 or more.
        """
        from lsr_prod.search.baseline import match_ids

        return match_ids(self._snapshot, sorted(set(terms)), required)

    def document_frequency(self, term: str | int) -> int:
        """Documents whose postings hold a term, a string or an id; 0 for one outside the vocabulary.

        Deleted documents count until their shard is merged.
        """
        snapshot = self._snapshot
        term_id = snapshot.vocabulary.ids.get(term, -1) if isinstance(term, str) else int(term)
        frequencies = snapshot.document_frequencies
        return int(frequencies[term_id]) if 0 <= term_id < len(frequencies) else 0

    @property
    def vocabulary(self) -> Sequence[str]:
        """The V terms, by id."""
        return self._snapshot.vocabulary.names

    def encode(self, texts: Sequence[str]) -> list[SparseQuery]:
        """The vectors of queries, as ``search`` makes them: by the model, or by IDF where the index has no other.

        Raises:
            QueryError: one of them is no text.
            MissingExtraError: queries have a model, and ONNX Runtime is not installed.
        """
        return self._encoder.encode(self._snapshot, texts)

    def warm(self) -> None:
        """Open what encodes queries, which the first text would do.

        Raises:
            MissingExtraError: queries have a model, and ONNX Runtime is not installed.
        """
        self._encoder.warm(self._snapshot)

    @property
    def encoder(self) -> "BundleEncoder":
        """The model of the index, opened on first use; it encodes documents, and queries unless these have none.

        Raises:
            MissingExtraError: ONNX Runtime is not installed.
        """
        return self._encoder.of(self._snapshot)

    def _shards(self, snapshot: Snapshot) -> Shards:
        return snapshot

    def _answer(
        self, snapshot: Snapshot, query: SparseQuery, request: Request, encode_ms: float, text: str | None
    ) -> SearchResult:
        shards = self._shards(snapshot)
        result = execute_query(snapshot, shards, query, request, encode_ms=encode_ms, text=text)
        if self._observer is not None:
            self._observer.answered(result)
        return result

    def _observed(self) -> AbstractContextManager[None]:
        return _UNOBSERVED if self._observer is None else _failures_told(self._observer)


_UNOBSERVED = nullcontext()


@contextmanager
def _failures_told(observer: Observer) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        observer.failed(error)
        raise
