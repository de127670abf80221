"""Router deployment: encode a query, pin a version, query the shard groups and merge their results."""

import asyncio
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.serve.handle import DeploymentHandle

from lsr_prod.errors import LsrError, QueryError
from lsr_prod.search.candidates import Shards
from lsr_prod.search.location import locate
from lsr_prod.search.metrics import Observer
from lsr_prod.search.open_index import open_current
from lsr_prod.search.result import SearchResult
from lsr_prod.search.searcher import Searcher
from lsr_prod.search.snapshot import Snapshot
from lsr_prod.serving.follow import Follower
from lsr_prod.serving.loopback import keep_internal_port_on_loopback
from lsr_prod.serving.metrics import RayObserver
from lsr_prod.serving.scatter import Groups, ScatteredShards
from lsr_prod.serving.versions import Pin
from lsr_prod.serving.wire import WireRequest, error_to_json, result_to_json
from lsr_prod.storage.signatures import trust

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["Router", "ScatteringSearcher"]

_MAX_BODY = 8 << 20  # bytes of an HTTP request


class ScatteringSearcher(Searcher):
    """A ``Searcher`` without open shards: it sends queries to the shard groups, with the version to read.

    ``explain``, ``bm25`` and ``match_tantivy`` need open shards and are not supported.
    """

    _shards_opened = ()

    def __init__(
        self,
        index: str | Path,
        groups: Groups,
        *,
        encoder_threads: int,
        options: Mapping[str, str] | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Open the current version.

        Args:
            index: folder or URI of the index.
            groups: shard groups that serve the index.
            encoder_threads: ONNX Runtime threads that encode one query.
            options: options of the object store.
            observer: receives metrics.
        """
        location = locate(index, None, None, options)
        snapshot = open_current(location, "lazy", shards=self._shards_opened)
        super().__init__(snapshot, location=location, encoder_threads=encoder_threads, observer=observer)
        self._groups = groups
        self._watch(snapshot)

    def _shards(self, snapshot: Snapshot) -> Shards:
        publication = snapshot.publication
        pin = Pin(publication.number, publication.version)
        return ScatteredShards(self._groups, pin, len(snapshot.version.shards))


class Router:
    """Entry point of the application: ``answer`` for handles, POST /search for HTTP."""

    def __init__(
        self,
        *groups: DeploymentHandle[Any],
        index: str,
        concurrency: int,
        encoder_threads: int,
        poll_seconds: float,
        attempts: int,
        timeout_s: float,
        options: Mapping[str, str] | None = None,
        trusted_keys: str | None = None,
    ) -> None:
        """Open the current version; the first text opens the encoder.

        Args:
            *groups: the shard groups, in order.
            index: folder or URI of the index.
            concurrency: queries that run at the same time.
            encoder_threads: ONNX Runtime threads that encode one query.
            poll_seconds: seconds between two checks for a new publication.
            attempts: maximum number of times a call is sent when replicas die.
            timeout_s: seconds for a call.
            options: options of the object store.
            trusted_keys: keys that publications must be signed by (``storage.signatures.trust``).
        """
        keep_internal_port_on_loopback()
        trust(trusted_keys)
        calls = Groups(groups, attempts=attempts, timeout_s=timeout_s)
        self._searcher = ScatteringSearcher(
            index, calls, encoder_threads=encoder_threads, options=options, observer=RayObserver()
        )
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="lsr-route")
        self._follower = Follower(self._searcher.refresh, poll_seconds)

    async def answer(self, request: Any) -> dict[str, Any]:
        """Return the response to a request, both JSON values (see ``wire``); an ``LsrError`` becomes a response."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._answer, request)

    async def state(self) -> dict[str, Any]:
        """Return process id, current version and the last failure to open a publication, for operators."""
        publication = self._searcher.publication
        return {
            "pid": os.getpid(),
            "publication": publication.number,
            "version": publication.version,
            "documents": self._searcher.documents,
            "problem": self._follower.problem,
        }

    async def __call__(self, request: "Request") -> "Response":
        """Serve POST /search: 200 with the result (``results`` for ``texts``), 400 with the error of a bad request."""
        from starlette.responses import JSONResponse

        if (request.method, request.url.path) != ("POST", "/search"):
            return JSONResponse({"error": "NotFound", "message": "send POST /search"}, 404)
        try:
            value = _parse(await request.body())
        except QueryError as error:
            return JSONResponse(error_to_json(error), 400)
        response = await self.answer(value)
        if "error" in response:
            return JSONResponse(response, {"QueryError": 400, "UnavailableError": 503}.get(response["error"], 500))
        return JSONResponse(response if "texts" in value else response["results"][0])

    def _answer(self, value: Any) -> dict[str, Any]:
        try:
            return {"results": [result_to_json(result) for result in self._search(WireRequest.read(value))]}
        except LsrError as error:
            return error_to_json(error)

    def _search(self, request: WireRequest) -> list[SearchResult]:
        if request.queries is None:
            return [self._searcher.search_vector(request.vector, request.k, text=request.text, **request.options)]
        return self._searcher.search_batch(request.queries, request.k, **request.options)


def _parse(body: bytes) -> Any:
    """Return the JSON value of a request body.

    Raises:
        QueryError: the body is not JSON, or too large.
    """
    if len(body) > _MAX_BODY:
        raise QueryError(f"the request has {len(body)} bytes; send at most {_MAX_BODY}")
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False).encode()  # the response repeats terms: no lone surrogates
        return value
    except (ValueError, RecursionError) as error:
        raise QueryError(f"the request is not JSON ({error}); send an object with text or vector") from error
