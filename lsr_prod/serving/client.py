"""``ServedSearcher``: a client with the search methods of ``Searcher`` for a Serve application.

Requests and responses of the operations other than search, as plain JSON values.

``bm25``: an object with ``text``, ``k``, ``count``, ``fields``; the response is that of a search. ``explain``: ``text``
or ``vector``, or both with ``hybrid``, and ``doc_id``, ``qk``; the response is ``{"explanation": {...}}``. ``encode``:
``texts``; the response is ``{"queries": [...]}``, each with ``terms``, ``ids`` and ``weights``.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Unpack

import numpy as np
from ray import serve
from ray.exceptions import RayTaskError
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from lsr_prod.errors import QueryError
from lsr_prod.search.hybrid import check_words, refuse_text
from lsr_prod.search.query import filters, sparse_query
from lsr_prod.search.query.search_request import CountOptions, Hybrid, Options
from lsr_prod.search.search_result import Contribution, Explanation, SearchResult
from lsr_prod.search.searcher import Vector
from lsr_prod.search.server import RETRY_AFTER_S
from lsr_prod.serving.groups import LOST, OverloadedError, UnavailableError, own_error, pause, send
from lsr_prod.serving.wire import (
    LIST,
    MAX_TEXTS,
    OPTION_FORMS,
    SEARCH_FORMS,
    STRING,
    VALUE,
    VECTOR,
    error_from_json,
    hybrid_to_json,
    read_object,
    request_to_json,
    result_from_json,
    vector_to_json,
)

FORMS = {
    "search": SEARCH_FORMS,
    "bm25": {"text": VALUE, "k": VALUE, **{name: OPTION_FORMS[name] for name in ("count", "fields")}},
    "explain": {
        "doc_id": STRING,
        "text": VALUE,
        "vector": VECTOR,
        **{name: OPTION_FORMS[name] for name in ("qk", "hybrid")},
    },
    "encode": {"texts": LIST},
}
"""Form of every entry of a request, by operation."""
REQUIRED = {"bm25": "text", "explain": "doc_id", "encode": "texts"}
"""Entry that a request must have, by operation."""


def read_bm25(value: Any) -> dict[str, Any]:
    """Return the arguments of ``Searcher.bm25``."""
    return read_object(value, FORMS["bm25"], required=[REQUIRED["bm25"]])


def read_encode(value: Any) -> dict[str, Any]:
    """Return the arguments of ``Searcher.encode``."""
    arguments = read_object(value, FORMS["encode"], required=[REQUIRED["encode"]])
    if len(arguments["texts"]) > MAX_TEXTS:
        raise QueryError(f"the request has {len(arguments['texts'])} texts; send at most {MAX_TEXTS} at a time")
    return arguments


def read_explain(value: Any) -> dict[str, Any]:
    """Return the arguments of ``Searcher.explain``."""
    arguments = read_object(value, FORMS["explain"], required=[REQUIRED["explain"]])
    text, vector = arguments.pop("text", None), arguments.pop("vector", None)
    if vector is None:
        if text is None:
            raise QueryError("give a text or a vector to explain, or both with hybrid")
        if not isinstance(text, str):
            raise QueryError(f"text={filters.shorten(text)} is not a string; give a string")
        return {"query": text, **arguments}
    if (text is not None) != (arguments.get("hybrid") is not None):
        raise QueryError("give a text or a vector to explain, or both with hybrid")
    return {"query": vector, "text": text, **arguments}


def query_to_json(query: sparse_query.SparseQuery) -> dict[str, Any]:
    """Return an encoded query as a JSON value."""
    return {"terms": list(query.terms), "ids": query.ids.tolist(), "weights": query.weights.tolist()}


def explanation_from_json(value: Mapping[str, Any]) -> Explanation:
    """Read an explanation that ``asdict`` made."""
    contributions = tuple(Contribution(**each) for each in value["contributions"])
    rest = {name: tuple(value[name]) for name in ("missing", "ranks")}
    return Explanation(**{**value, **rest, "contributions": contributions})


class ServedSearcher:
    """A client of a served index, in a process that is connected to its Ray cluster. Safe to share between threads.

    Hits equal those of the embedded ``Searcher`` on the version that the result names, except with ``scan_share`` below
    1: they then depend on the shards of each group. ``encode_ms``, ``match_ms`` and ``fetch_ms`` are the router's.
    """

    def __init__(self, handle: DeploymentHandle[Any], *, attempts: int = 5, timeout_s: float = 60) -> None:
        """Connect to a router.

        Args:
            handle: of the router; ``connect`` finds it.
            attempts: maximum number of times a request is sent when routers die.
            timeout_s: seconds to wait for a response.
        """
        self._handle = handle
        self._attempts = attempts
        self._timeout_s = timeout_s

    @classmethod
    def connect(cls, name: str = "lsr_prod", *, attempts: int = 5, timeout_s: float = 60) -> "ServedSearcher":
        """Return a client of a running application; see ``serve.name``."""
        return cls(serve.get_app_handle(name), attempts=attempts, timeout_s=timeout_s)

    def search(self, text: str, k: int = 10, **options: Unpack[Options]) -> SearchResult:
        """Encode a text and search; see ``Searcher.search``.

        Raises:
            QueryError: an argument is outside its range, or ``text`` is not a string.
            ArtifactError: the index is damaged.
            OverloadedError: the queue of the router is full; nothing was run.
            UnavailableError: no replica answered.
        """
        return self._request(request_to_json(k, options, text=text))[0]

    def search_batch(self, texts: Sequence[str], k: int = 10, **options: Unpack[Options]) -> list[SearchResult]:
        """Encode many texts in one batch and search for each, in one version; see ``Searcher.search_batch``."""
        sparse_query.check_texts(texts)
        return self._request(request_to_json(k, options, texts=list(texts)))

    def search_vector(
        self, vector: Vector, k: int = 10, *, text: str | None = None, **options: Unpack[Options]
    ) -> SearchResult:
        """Search with given weights; see ``Searcher.search_vector``."""
        check_words(text, options.get("hybrid"))
        return self._request(request_to_json(k, options, vector=vector, **{} if text is None else {"text": text}))[0]

    def count(self, query: str | Vector, *, text: str | None = None, **options: Unpack[CountOptions]) -> int:
        """Count the documents that match a text or a vector; see ``Searcher.count``."""
        filters.check_options("count", options, CountOptions.__annotations__)
        if not isinstance(query, str):
            return self.search_vector(query, 0, text=text, count=True, **options).matched
        refuse_text(text)
        return self.search(query, 0, count=True, **options).matched

    async def search_async(self, text: str, k: int = 10, **options: Unpack[Options]) -> SearchResult:
        """Run ``search`` without a thread: the event loop awaits the response."""
        return result_from_json((await self._send_async(request_to_json(k, options, text=text)))["results"][0])

    def bm25(self, text: str, k: int = 10, *, count: bool = False, fields: Sequence[str] = ()) -> SearchResult:
        """Rank documents by BM25; see ``Searcher.bm25``. The index needs ``index.bm25``."""
        options: Options = {"count": count, "fields": fields}
        return result_from_json(self._send(request_to_json(k, options, text=text), "bm25")["results"][0])

    def explain(
        self,
        query: str | Vector,
        doc_id: str,
        *,
        qk: int | None = None,
        hybrid: Hybrid | None = None,
        text: str | None = None,
    ) -> Explanation:
        """Explain the score of a document for a query; see ``Searcher.explain``.

        Raises:
            QueryError: there is no such document, or the query is outside its range.
            UnavailableError: a shard group did not answer.
        """
        request: dict[str, Any] = {"doc_id": doc_id, "qk": qk}
        if isinstance(query, str):
            refuse_text(text)
            request["text"] = query
        else:
            check_words(text, hybrid)
            request |= {"vector": vector_to_json(query), "text": text}
        if hybrid is not None:
            request["hybrid"] = hybrid_to_json(hybrid)
        return explanation_from_json(self._send(request, "explain")["explanation"])

    def encode(self, texts: Sequence[str]) -> list[sparse_query.SparseQuery]:
        """Encode queries as ``search`` does; see ``Searcher.encode``."""
        sparse_query.check_texts(texts)
        found = self._send({"texts": list(texts)}, "encode")["queries"]
        arrays = ((np.array(one["ids"], np.int32), np.array(one["weights"], np.float32)) for one in found)
        return [sparse_query.SparseQuery(*each, tuple(one["terms"])) for one, each in zip(found, arrays, strict=True)]

    def _request(self, request: dict[str, Any]) -> list[SearchResult]:
        return [result_from_json(result) for result in self._send(request)["results"]]

    def _send(self, request: dict[str, Any], operation: str = "search") -> dict[str, Any]:
        end = time.monotonic() + self._timeout_s
        for attempt in range(self._attempts):
            try:
                left = max(0.0, end - time.monotonic())
                with self._failures():
                    return _checked(self._handle.answer.remote(request, operation).result(timeout_s=left))
            except LOST:
                time.sleep(pause(attempt))
            except RayTaskError as error:
                raise own_error(error) from error
        raise UnavailableError(f"{self._attempts} routers were lost with the same request; look at their logs")

    async def _send_async(self, request: dict[str, Any]) -> dict[str, Any]:
        what, answer = {"deployment": "router"}, self._handle.answer.remote
        with self._failures():
            sent = send(lambda: answer(request), attempts=self._attempts, timeout_s=self._timeout_s, what=what)
            return _checked(await sent)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except BackPressureError as error:
            raise OverloadedError(f"all routers are full ({error}); try again after {RETRY_AFTER_S} s") from error
        except TimeoutError as error:
            raise UnavailableError(f"no router answered within {self._timeout_s} s; look at its log") from error


def _checked(response: dict[str, Any]) -> dict[str, Any]:
    if "error" in response:
        raise error_from_json(response)
    return response
