"""Router deployment: encode a query, pin a version, query the shard groups and merge their results."""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ray.serve.handle import DeploymentHandle
from ray.util.metrics import Counter, Gauge, Histogram

from lsr_prod.config import ServeSettings
from lsr_prod.errors import LsrError, QueryError
from lsr_prod.search import follower, search_result
from lsr_prod.search.observers import BUCKETS, stages
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.searcher import Searcher
from lsr_prod.search.server import RETRY_AFTER_S, Admission, Collector
from lsr_prod.serving import client, haproxy, replica, scatter, wire
from lsr_prod.serving.groups import Groups, OverloadedError
from lsr_prod.serving.http import Reply, error_reply, json_reply, parse_body, read_body, send_reply
from lsr_prod.storage.signatures import trust

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

OPERATIONS = tuple(client.FORMS)
_HEALTH_S = 1.0  # for a group to answer a health check
_PATHS = frozenset({"/health", *(f"/{name}" for name in OPERATIONS)})


def run_operation(searcher: Searcher, operation: str, value: Any, waited_ms: float) -> dict[str, Any]:
    """Return the response to a request."""
    match operation:
        case "search":
            return _search(searcher, wire.WireRequest.read(value), waited_ms)
        case "bm25":
            return {"results": [wire.result_to_json(searcher.bm25(**client.read_bm25(value)))]}
        case "explain":
            return {"explanation": asdict(searcher.explain(**client.read_explain(value)))}
        case "encode":
            return {"queries": [client.query_to_json(query) for query in searcher.encode(**client.read_encode(value))]}
        case _:
            raise QueryError(f"the operation {shorten(operation)} is unknown; use one of: {', '.join(OPERATIONS)}")


def _search(searcher: Searcher, request: wire.WireRequest, waited_ms: float) -> dict[str, Any]:
    options = request.options
    deadline_ms = options.get("deadline_ms")
    if isinstance(deadline_ms, int | float) and deadline_ms is not True and 0 < deadline_ms <= 1e9:  # validated later
        options["deadline_ms"] = max(0.0, deadline_ms - waited_ms)
    if request.queries is None:
        results = [searcher.search_vector(request.vector, request.k, text=request.text, **options)]
    else:
        results = searcher.search_batch(request.queries, request.k, **options)
    return {"results": [wire.result_to_json(result) for result in results]}


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A request: its value, or with ``http`` its body, and when it arrived."""

    operation: str
    value: Any
    arrived: float
    http: bool = False


class Router:
    """Entry point of the application: ``answer`` for handles, and ``__call__`` and ``asgi`` for HTTP."""

    def __init__(
        self,
        *groups: DeploymentHandle[Any],
        settings: ServeSettings,
        options: Mapping[str, str] | None = None,
        trusted_keys: str | None = None,
    ) -> None:
        """Open the current version; the first text opens the encoder."""
        haproxy.keep_internal_port_on_loopback()
        haproxy.answer_http_directly(self.asgi, _PATHS)
        trust(trusted_keys)
        self._settings = settings
        partial_results, timeout_s = settings.missing_groups == "partial", settings.timeout_s
        self._groups = Groups(groups, attempts=settings.attempts, timeout_s=timeout_s, partial=partial_results)
        opened: dict[str, Any] = {
            "encoder_threads": settings.encoder_threads,
            "observer": RayObserver(),
            "max_query_bytes": settings.max_query_bytes,
        }
        self._searcher = (
            scatter.ScatteringSearcher(settings.index, self._groups, options=options, **opened)
            if groups
            else Searcher.open(settings.index, storage_options=options, **opened)
        )
        self._calls = replica.RunningCalls(replica.HUNG * timeout_s)
        threads = settings.concurrency if groups else settings.threads
        self._collector = Collector(self._answer_one, threads, "lsr-route", **({"small_s": 0.0} if groups else {}))
        self._admission = Admission(threads + settings.queue, settings.queue_s)
        self._follower = follower.Follower(self._searcher.refresh, settings.poll_seconds)

    async def answer(self, request: Any, operation: str = "search") -> dict[str, Any]:
        """Return the response to a request, both JSON values; an ``LsrError`` becomes a response."""
        queued = QueuedRequest(operation, request, time.monotonic())
        try:
            with self._admitted():
                answered: dict[str, Any] = await self._collector.run(queued)
                return answered
        except OverloadedError as error:
            return wire.error_to_json(error)

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

    async def health(self) -> dict[str, Any]:
        """Return whether queries can be answered, the shard groups that do not answer, and the load.

        ``status`` is ok, degraded (partial results) or unavailable.
        """
        missing = await asyncio.wrap_future(self._groups.submit(self._groups.missing(_HEALTH_S)))
        served = self._groups.partial and len(missing) < len(self._groups.handles)
        return {
            "status": "ok" if not missing else "degraded" if served else "unavailable",
            "missing_groups": list(missing),
            "publication": self._searcher.publication.number,
            "version": self._searcher.publication.version,
            "requests": self._admission.admitted,
            "problem": self._follower.problem,
        }

    def check_health(self) -> None:
        """Fail if this process has to be replaced; called by Ray Serve."""
        self._follower.check_alive()
        self._calls.check_progress()

    async def __call__(self, request: "Request") -> "Response":
        """Serve HTTP that comes from a proxy of Ray Serve; see ``asgi``."""
        from starlette.responses import Response

        reply = await self._reply(request.scope, request.receive)
        response = Response(reply.body, reply.status)
        response.raw_headers = reply.headers
        return response

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve HTTP, as an application of ASGI.

        POST /search, /bm25, /explain, /encode: 200 with the response (a search with ``texts`` has ``results``, others
        are the result itself), 400 with the error of a bad request, 408 or 413 for a body that is too slow or too
        large, 503 without an answer; with ``Retry-After``, and before the body is read, if the queue is full.
        GET /health: 200 if queries are answered, else 503; it does not wait in the queue.
        """
        try:
            reply = await self._reply(scope, receive)
        except ConnectionError:
            return  # the client left
        await send_reply(send, reply)

    async def _reply(self, scope: Any, receive: Any) -> Reply:
        method, operation = scope["method"], scope["path"].removeprefix("/")
        if method == "POST" and operation in OPERATIONS:
            return await self._respond(operation, scope, receive)
        if (method, operation) == ("GET", "health"):
            health = await self.health()
            return json_reply(health, 503 if health["status"] == "unavailable" else 200)
        known = ", ".join(f"/{name}" for name in OPERATIONS)
        return json_reply({"error": "NotFound", "message": f"send POST to {known}, or GET to /health"}, 404)

    async def _respond(self, operation: str, scope: Any, receive: Any) -> Reply:
        limit, timeout_s = self._settings.max_body_bytes, self._settings.timeout_s
        try:
            with self._admitted():
                body = await read_body(receive, dict(scope["headers"]), limit=limit, timeout_s=timeout_s)
                reply: Reply = await self._collector.run(QueuedRequest(operation, body, time.monotonic(), http=True))
                return reply
        except OverloadedError as error:
            await self._admission.pause()
            return error_reply(error)
        except LsrError as error:
            return error_reply(error)

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        """Count a request until the end of the block."""
        if (refusal := self._admission.refusal()) is not None:
            raise OverloadedError(
                f"{refusal} (serve.queue, serve.queue_s); try again after {RETRY_AFTER_S} s, or add routers"
            )
        with self._admission.admit():
            yield

    def _answer_one(self, asked: QueuedRequest) -> Any:
        return self._calls.run(partial(self._reply_to if asked.http else self._answer, asked))

    def _answer(self, asked: QueuedRequest) -> dict[str, Any]:
        waited_s = time.monotonic() - asked.arrived
        try:
            if waited_s > self._settings.timeout_s:
                raise OverloadedError(f"the request waited for {waited_s:.1f} s and was not run; try again later")
            return run_operation(self._searcher, asked.operation, asked.value, waited_s * 1e3)
        except LsrError as error:
            return wire.error_to_json(error)

    def _reply_to(self, asked: QueuedRequest) -> Reply:
        try:
            value = parse_body(asked.value)
        except LsrError as error:
            return error_reply(error)
        response = self._answer(replace(asked, value=value))
        if "results" in response and "texts" not in value:
            response = response["results"][0]
        return json_reply(response)


class RayObserver:
    """Observer of the router's searcher."""

    def __init__(self) -> None:
        """Create the metrics; Ray adds ``ray_`` to their names."""
        self._queries = Counter("lsr_prod_search_queries", "queries by outcome", tag_keys=("outcome",))
        self._seconds = Histogram(
            "lsr_prod_search_seconds", "seconds of a query by stage", boundaries=list(BUCKETS), tag_keys=("stage",)
        )
        self._publication = Gauge("lsr_prod_search_publication", "number of the current publication")
        self._documents = Gauge("lsr_prod_search_documents", "documents that can be found")

    def answered(self, result: search_result.SearchResult) -> None:
        """See ``Observer``."""
        self._queries.inc(1, tags={"outcome": "partial" if result.partial else "full"})
        for stage, seconds in stages(result).items():
            self._seconds.observe(seconds, tags={"stage": stage})

    def failed(self, error: Exception) -> None:
        """See ``Observer``."""
        self._queries.inc(1, tags={"outcome": type(error).__name__})

    def opened(self, version: str, publication: int, documents: int) -> None:  # noqa: ARG002 (of the protocol)
        """See ``Observer``."""
        self._publication.set(publication)
        self._documents.set(documents)
