"""``Searcher``: queries over the current version of an index, from any number of threads."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, Unpack, cast

import numpy as np

from lsr_prod.errors import ArtifactError, ConfigError, QueryError
from lsr_prod.search import candidates, observers, open_index, open_settings, query_encoder
from lsr_prod.search.array_search import ArrayResult, check_array_request, search_arrays
from lsr_prod.search.executor import execute_bm25, execute_query
from lsr_prod.search.explain import explain_parts, rank_explanation
from lsr_prod.search.hybrid import WeighedWords, check_words, refuse_text, weigh_words
from lsr_prod.search.index_snapshot import Snapshot, Verify
from lsr_prod.search.query.filters import check_names, check_options, shorten
from lsr_prod.search.query.query_text import MAX_QUERY_BYTES, cut_text, text_query
from lsr_prod.search.query.search_request import (
    ArrayOptions,
    CountOptions,
    Hybrid,
    Options,
    Request,
    check_hybrid,
    make_request,
)
from lsr_prod.search.query.sparse_query import (
    SparseQuery,
    check_ids,
    check_qk,
    check_term_ids,
    check_text,
    check_texts,
    required_terms,
)
from lsr_prod.search.search_result import Explanation, SearchResult
from lsr_prod.storage import Store, is_remote

if TYPE_CHECKING:
    from lsr_prod.inference import BundleEncoder

Vector = Mapping[str | int, float]
_Search = TypeVar("_Search", bound=Callable[..., Any])


def _observed(search: _Search) -> _Search:
    """Notify the observer of a failure; after damage, let the next refresh fetch the version again."""

    @wraps(search)
    def call(self: "Searcher", *arguments: Any, **named: Any) -> Any:
        try:
            return search(self, *arguments, **named)
        except Exception as error:
            self._failed(error)
            raise

    return cast("_Search", call)


class Searcher(open_index.OpenIndex):
    """Searches the current version of an index. Safe to share between threads.

    Every result comes from one version, the one that was open when its query started. ``refresh`` opens the version of
    the current publication; the previous one is unmapped when the last query that reads it has returned.

    A document matches if it shares at least max(1, min_terms, ceil(overlap_threshold x |q|)) of the query's terms. |q|
    counts the terms that ``qk`` keeps, terms that no document has included. An empty query matches nothing. Hits are
    sorted by falling score, ties by rising id. The keywords of all searches are those of ``Request``.

    Examples:
        >>> from lsr_prod import Index  # a Searcher over texts; ``Searcher.open`` opens a published index
        >>> with Index.from_texts({"lock": "hold a lock", "date": "parse a date"}) as searcher:
        ...     result = searcher.search("date or lock", k=1)
        ...     [hit.doc_id for hit in result.hits], result.matched
        (['date'], 2)
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        location: open_index.IndexLocation | None = None,
        bundle: Path | None = None,
        verify: Verify = "lazy",
        encoder_threads: int = 1,
        observer: observers.Observer | None = None,
        max_query_bytes: int = MAX_QUERY_BYTES,
    ) -> None:
        """Search an open version; ``Searcher.open`` opens the current one."""
        if not isinstance(snapshot, Snapshot):
            name = type(self).__name__
            raise ConfigError("snapshot", f"{shorten(snapshot)} is no open version", f"open an index with {name}.open")
        numbers = {"encoder_threads": encoder_threads, "max_query_bytes": max_query_bytes}
        open_settings.check_settings({"verify": verify, **numbers, "bundle": bundle, "observer": observer})
        location = location or open_index.IndexLocation(Store(str(snapshot.index)))
        super().__init__(snapshot, location, verify=verify, observer=observer)
        self._max_query_bytes = max_query_bytes
        self._encoder = query_encoder.QueryEncoder(threads=encoder_threads, verify=verify is not False, bundle=bundle)

    @classmethod
    def open(
        cls,
        index: str | Path,
        *,
        verify: Verify = "lazy",
        encoder_threads: int = 1,
        bundle: str | Path | None = None,
        observer: observers.Observer | None = None,
        cache: str | Path | None = None,
        cache_bytes: int | None = None,
        storage_options: Mapping[str, str] | None = None,
        max_query_bytes: int = MAX_QUERY_BYTES,
        publication: int | None = None,
        **unknown: Never,
    ) -> Self:
        """Open the current version of an index; its files are mapped, not read.

        Args:
            index: folder of the index, or URI of a remote one (s3://, gs://, az://).
            verify: "lazy": compare every page with its sha256 when it is read for the first time; True: compare every
                file with its sha256 now (reads all files), and pages of later versions lazily; False: verify nothing.
            encoder_threads: ONNX Runtime threads that encode one query.
            bundle: folder or URI of the encoder, instead of the copy in the index; the first query rejects a bundle
                that did not encode the index.
            observer: notified of every query and version.
            cache: folder on a local disk where the versions of a remote index are cached, verified when fetched; None:
                the node cache of the user.
            cache_bytes: quota of that folder; None: no quota, or that of the node cache of the user.
            storage_options: options of the object store.
            max_query_bytes: longer texts of queries are cut before they are tokenized, 64 to 67,108,864 bytes of UTF-8.
            publication: number of the publication to open; None: the current one. ``refresh`` opens the current one.
            **unknown: refused; the message names the setting that was probably meant.

        Raises:
            ConfigError: a setting is unknown, or its value is not possible.
            PublicationError: nothing is published there, or no publication has that number.
            ArtifactError: the version is incomplete, damaged or of another format.
            StorageError: the object store cannot be reached, or the version does not fit into the cache.
        """
        open_settings.check_unknown(unknown)
        open_settings.check_index(index)
        settings: dict[str, Any] = {"verify": verify, "encoder_threads": encoder_threads}
        settings |= {"observer": observer, "max_query_bytes": max_query_bytes}
        places = {"bundle": bundle, "cache": cache, "cache_bytes": cache_bytes, "storage_options": storage_options}
        open_settings.check_settings({**settings, **places, "publication": publication})
        location = open_index.locate(index, cache, cache_bytes, storage_options)
        snapshot = open_index.open_published(location, publication, verify)
        folder = None if bundle is None else _bundle_folder(bundle, storage_options)
        searcher = cls(snapshot, location=location, bundle=folder, **settings)
        searcher._watch(snapshot)
        return searcher

    def search(self, text: str, k: int = 10, **options: Unpack[Options]) -> SearchResult:
        """Encode a text and search.

        Args:
            text: the query, prompt excluded.
            k: maximum number of hits, 0..10,000.
            **options: see ``Request``.

        Raises:
            QueryError: an argument is outside its range, or ``text`` is not a valid string.
            ArtifactError: the index is damaged.
            MissingExtraError: ONNX Runtime is not installed.
        """
        return self.search_batch([text], k, **options)[0]

    @_observed
    def search_batch(self, texts: Sequence[str], k: int = 10, **options: Unpack[Options]) -> list[SearchResult]:
        """Encode several texts in one batch and search for each in the same version; see ``search``.

        Scores can differ from those of single queries in the last digits, because the sums of an encoder depend on the
        batch. ``encode_ms`` is an equal share of the encoding time of the batch. The texts share ``deadline_ms``: those
        that are not encoded by then have no hits, and their results are partial.
        """
        check_texts(texts)
        start = time.monotonic()
        request, snapshot = make_request(k, options), self._snapshot
        if request.cursor is not None and len(texts) != 1:
            raise QueryError(f"search_after belongs to one query, but there are {len(texts)}; give offset, or one text")
        texts = [self._cut(text) for text in texts]
        deadline = request.deadline(start)
        queries = self._encoder.encode_until(snapshot, texts, deadline)
        encode_ms = (time.monotonic() - start) * 1e3 / max(1, len(texts))
        pairs = zip(queries, texts, strict=True)
        return [self._execute(snapshot, query, request, encode_ms, text, deadline) for query, text in pairs]

    @_observed
    def search_vector(
        self, vector: Vector, k: int = 10, *, text: str | None = None, **options: Unpack[Options]
    ) -> SearchResult:
        """Search with given term weights; does not need ONNX Runtime.

        Args:
            vector: weight by term, a string of the output vocabulary or its id. A term of weight 0 is ignored; a string
                outside the vocabulary counts in |q| and matches nothing.
            k: maximum number of hits.
            text: text whose words a hybrid search matches; only with ``hybrid``.
            **options: see ``Request``.

        Raises:
            QueryError: a weight is NaN, infinite or negative, an id is out of range, or an argument is.
            ArtifactError: the index is damaged.
        """
        start = time.monotonic()
        request, snapshot = make_request(k, options), self._snapshot
        query = SparseQuery.from_vector(vector, snapshot.vocabulary)
        check_words(text, request.hybrid)
        text = None if text is None else self._cut(text)
        return self._execute(snapshot, query, request, (time.monotonic() - start) * 1e3, text, request.deadline(start))

    @_observed
    def search_arrays(
        self,
        offsets: np.typing.NDArray[np.int64],
        ids: np.typing.NDArray[np.int32],
        weights: np.typing.NDArray[np.float32],
        k: int = 10,
        **options: Unpack[ArrayOptions],
    ) -> ArrayResult:
        """Search with many vectors, given and answered as arrays; the GIL is released for the whole batch.

        Args:
            offsets: int64 [n + 1], where the terms of each query begin; ends with t.
            ids: int32 [t], terms of the vocabulary, distinct in a query.
            weights: float32 [t], 0 or more; a term of weight 0 is ignored.
            k: maximum number of hits per query.
            **options: see ``Request``; ``deadline_ms`` is for the whole batch. Other options of a search are refused.

        Raises:
            QueryError: an array or a value is outside its range; it names the query.
            ArtifactError: the index is damaged.
        """
        request = make_request(k, options)
        check_array_request(request, options)
        return search_arrays(self._snapshot, offsets, ids, weights, request)

    async def search_async(self, text: str, k: int = 10, **options: Unpack[Options]) -> SearchResult:
        """Run ``search`` in a thread of asyncio's pool, so that the event loop is not blocked."""
        return await asyncio.to_thread(self.search, text, k, **options)

    def count(self, query: str | Vector, *, text: str | None = None, **options: Unpack[CountOptions]) -> int:
        """Count all documents that match a text or a vector, whatever their score.

        Args:
            query: a text, or a vector as in ``search_vector``.
            text: as in ``search_vector``.
            **options: see ``Request``. After ``deadline_ms`` the number is that of the documents found so far.

        Raises:
            QueryError: the query or an argument is outside its range, or an option does not change the number.
            MissingExtraError: a text is given and ONNX Runtime is not installed.
        """
        check_options("count", options, CountOptions.__annotations__)
        if not isinstance(query, str):
            return self.search_vector(query, 0, text=text, count=True, **options).matched
        refuse_text(text)
        return self.search(query, 0, count=True, **options).matched

    @_observed
    def explain(
        self,
        query: str | Vector,
        doc_id: str,
        *,
        qk: int | None = None,
        hybrid: Hybrid | None = None,
        text: str | None = None,
        **unknown: Never,
    ) -> Explanation:
        """Explain the score of a document for a query, whether or not the document would pass a threshold.

        Args:
            query: a text, or a vector as in ``search_vector``.
            doc_id: the document.
            qk: number of query terms, heaviest first; None: all.
            hybrid: as in the search; only with ``fusion="sum"``, since fused ranks have no parts.
            text: text whose words are matched in addition to a vector; only with ``hybrid``.
            **unknown: refused; the message names the option that was probably meant.

        Raises:
            QueryError: there is no such document, an option is unknown, or the query is outside its range.
            MissingExtraError: a text is given and ONNX Runtime is not installed.
        """
        check_options("explain", unknown, ("qk", "hybrid", "text"))
        check_qk(qk)
        if hybrid is not None:
            check_hybrid(hybrid)
        snapshot = self._snapshot
        if isinstance(query, str):
            refuse_text(text)
            text = self._cut(query)
            sparse = self._encoder.encode(snapshot, [text])[0]
        else:
            sparse = SparseQuery.from_vector(query, snapshot.vocabulary)
            check_words(text, hybrid)
            text = None if text is None else self._cut(text)
        words = None
        if hybrid is not None and text is not None:
            words = weigh_words(self._shards(snapshot), snapshot.version, text)
        return self._explain(snapshot, sparse.top(qk), doc_id, hybrid, words)

    @_observed
    def bm25(
        self, text: str, k: int = 10, *, count: bool = False, fields: Sequence[str] = (), **unknown: Never
    ) -> SearchResult:
        """Rank documents by BM25 over the text fields; a document matches if it has any of the words.

        An index built with ``index.bm25`` uses its postings and the document frequencies of all shards. Otherwise
        Tantivy ranks each shard with its own document frequencies, so scores of different shards are only roughly
        comparable.

        Args:
            text: the query.
            k: hits at most.
            count: every match is counted, whatever it says; other searches need it for fused lists.
            fields: stored fields and attributes to return with the hits.
            **unknown: refused; the message names the option that was probably meant.

        Raises:
            QueryError: ``k`` or a field is outside its range, an option is unknown, or the index has no text fields.
        """
        check_options("bm25", unknown, ("count", "fields"))
        text = self._cut(text)
        snapshot = self._snapshot
        result = execute_bm25(snapshot, self._shards(snapshot), text, Request(k=k, fields=fields, count=count))
        if self._observer is not None:
            self._observer.answered(result)
        return result

    @_observed
    def match_boolean(self, query: str) -> set[str]:
        """Return the ids of all documents that match a Boolean query in Tantivy's syntax, over text and attributes.

        Args:
            query: such as ``lock AND NOT thread``, ``(json OR xml) AND year:[2020 TO *]``; see ``boolean_query``.

        Raises:
            QueryError: the query cannot be parsed, or needs a field or feature that the index does not have.
        """
        check_text(query)
        snapshot = self._snapshot
        return snapshot.match_filter(snapshot.check_filter(text_query(query)))

    @_observed
    def match_terms(self, terms: Iterable[int], required: int = 1) -> set[str]:
        """Return the ids of all documents with at least ``required`` of the terms, whatever their score.

        Args:
            terms: output-vocabulary ids.
            required: 1 or more.

        Raises:
            QueryError: a term is no id of the vocabulary, or ``required`` is not possible.
        """
        snapshot = self._snapshot
        needed = required_terms(0, overlap_threshold=0.0, min_terms=required)
        return snapshot.match_terms(check_term_ids(terms, len(snapshot.vocabulary.names)), needed)

    @_observed
    def encode(self, texts: Sequence[str]) -> list[SparseQuery]:
        """Encode queries as ``search`` does: by the model, or by term weights if queries have no model.

        Raises:
            QueryError: ``texts`` is not a list, or a text is not a valid string.
            MissingExtraError: queries have a model, and ONNX Runtime is not installed.
        """
        check_texts(texts)
        return self._encoder.encode(self._snapshot, [self._cut(text) for text in texts])

    @_observed
    def get(self, doc_ids: Sequence[str], fields: Sequence[str] = ()) -> list[Mapping[str, Any] | None]:
        """Return stored fields and attributes of documents, in the order of the ids; None for ids the index lacks.

        Args:
            doc_ids: up to 10,000 ids.
            fields: stored fields and attributes; none: all that the index stores.

        Raises:
            QueryError: there are too many ids, one is not a string, or a field is not stored.
            ArtifactError: the index is damaged.
        """
        snapshot = self._snapshot
        check_ids(doc_ids)
        check_names("fields", fields)
        snapshot.check_fields(fields)
        names = list(fields) or [*dict.fromkeys([*snapshot.version.stored_fields, *snapshot.version.attributes])]
        places = [snapshot.place(doc_id) for doc_id in doc_ids]
        rows = [(0.0, "", *place, 0) for place in places if place is not None]
        found = iter(self._shards(snapshot).fields(rows, names))
        return [None if place is None else next(found) for place in places]

    def close(self) -> None:
        """Release index and encoder; running queries finish, later ones raise ``QueryError``."""
        super().close()
        self._encoder.close()

    def warm(self) -> None:
        """Open the encoder of queries before the first text needs it.

        Raises:
            MissingExtraError: queries have a model, and ONNX Runtime is not installed.
        """
        self._encoder.warm(self._snapshot)

    @property
    def encoder(self) -> "BundleEncoder":
        """The model of the index, opened on first use; it encodes documents, and queries unless they have no model.

        Raises:
            MissingExtraError: ONNX Runtime is not installed.
        """
        return self._encoder.of(self._snapshot)

    def _shards(self, snapshot: Snapshot) -> candidates.Shards:
        return snapshot

    def _explain(
        self, snapshot: Snapshot, query: SparseQuery, doc_id: str, hybrid: Hybrid | None, words: WeighedWords | None
    ) -> Explanation:
        snapshot.find(doc_id)
        parts = explain_parts(snapshot, query, doc_id, hybrid, words)
        assert parts is not None
        return rank_explanation(parts, query, snapshot, snapshot.version.impact_step, hybrid, words)

    def _prepare(self, snapshot: Snapshot) -> None:
        self._encoder.prepare(snapshot)

    def _swapped(self, snapshot: Snapshot) -> None:
        self._encoder.keep(snapshot)

    def _execute(
        self,
        snapshot: Snapshot,
        query: SparseQuery,
        request: Request,
        encode_ms: float,
        text: str | None,
        deadline: float | None,
    ) -> SearchResult:
        shards = self._shards(snapshot)
        result = execute_query(snapshot, shards, query, request, encode_ms=encode_ms, text=text, deadline=deadline)
        if self._observer is not None:
            self._observer.answered(result)
        return result

    def _cut(self, text: str) -> str:
        return cut_text(text, self._max_query_bytes)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, ArtifactError):
            self._damaged = True
        if self._observer is not None:
            self._observer.failed(error)


def _bundle_folder(bundle: str | Path, options: Mapping[str, str] | None) -> Path:
    if isinstance(bundle, Path) or not is_remote(bundle):
        return Path(bundle)
    from lsr_prod.storage.folders import open_folder

    return open_folder(bundle, options)
