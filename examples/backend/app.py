"""A search backend: FastAPI with an embedded index, one ``Searcher`` per worker process, and a search page at ``/``.

::

    cd examples/backend
    LSR_INDEX=/data/index uvicorn app:app --workers 2
    LSR_INDEX=/data/index gunicorn --config gunicorn.conf.py app:app

The environment has the settings: ``LSR_INDEX`` (folder or URI), ``LSR_INDEX_B`` (a second index, or another publication
of the same, ``/data/index@41``), ``LSR_POLL_SECONDS``, ``LSR_THREADS``, ``LSR_WAITING``, ``LSR_WAIT_S`` and
``LSR_DEADLINE_MS``.
"""

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from answers import ExplainAnswer, IndexAnswer, SearchAnswer, answer, describe, explained, text_fields
from backend import Backend, Side
from fastapi import FastAPI, HTTPException, Query, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest, multiprocess
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lsr_prod.errors import QueryError
from lsr_prod.search import Filter, Hybrid, filter_from_json
from lsr_prod.search.server import RETRY_AFTER_S

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
SEARCHES = ("/search", "/explain")
REFUSED = b'{"detail":"too many requests wait"}'
REFUSED_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(REFUSED)),
    (b"retry-after", b"%d" % RETRY_AFTER_S),
]
FACETED = ("string", "strings", "bool")  # types of attributes whose values are counted

Text = Annotated[str, Query(max_length=10_000, description="the query")]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the indexes in the worker, after a fork; threads and locks do not survive one."""
    backend = Backend(
        os.environ["LSR_INDEX"],
        os.environ.get("LSR_INDEX_B"),
        threads=int(os.environ.get("LSR_THREADS", "2")),
        waiting=int(os.environ.get("LSR_WAITING", "512")),
        wait_s=float(os.environ.get("LSR_WAIT_S", "0.5")),
        poll_seconds=float(os.environ.get("LSR_POLL_SECONDS", "5")),
        deadline_ms=float(os.environ.get("LSR_DEADLINE_MS", "1000")),
    )
    app.state.backend = backend
    try:
        yield
    finally:
        backend.close()


class SecurityHeaders:
    """Adds ``HEADERS`` to every answer; middleware without a task per request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)


class Refusal:
    """Refuses a search that would wait too long, before anything else is done for it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 503."""
        if scope["type"] != "http" or scope["path"] not in SEARCHES:
            await self._app(scope, receive, send)
            return
        admission = app.state.backend.admission
        if admission.refusal() is None:
            with admission.admit():
                await self._app(scope, receive, send)
            return
        await admission.pause()
        await send({"type": "http.response.start", "status": 503, "headers": REFUSED_HEADERS})
        await send({"type": "http.response.body", "body": REFUSED})


# The interactive documentation of FastAPI is off: it loads scripts from other hosts. The schema is at /openapi.json.
app = FastAPI(title="lsr_prod example backend", lifespan=lifespan, docs_url=None, redoc_url=None)
app.add_middleware(Refusal)
app.add_middleware(SecurityHeaders)  # around it
app.mount("/static", StaticFiles(directory=STATIC), name="static")


@app.get("/", include_in_schema=False)
async def page() -> FileResponse:
    """Return the search page."""
    return FileResponse(STATIC / "search.html", media_type="text/html; charset=utf-8")


@app.get("/index")
async def index() -> IndexAnswer:
    """Return what the served indexes have: documents, attributes, whether a hybrid search is possible."""
    backend: Backend = app.state.backend
    sides = {side: describe(searcher, backend.names[side]) for side, searcher in backend.sides.items()}
    return IndexAnswer(a=sides["a"], b=sides.get("b"))


@app.get("/search")
async def search(
    q: Text,
    k: Annotated[int, Query(ge=1, le=100, description="hits")] = 10,
    side: Side = "a",
    threshold: Annotated[float, Query(ge=0, le=1, description="share of the terms that a hit must have")] = 0.0,
    min_terms: Annotated[int, Query(ge=1, le=1_000, description="number of terms that a hit must have")] = 1,
    hybrid: Annotated[bool, Query(description="rank also by the words of the query")] = False,
    condition: Annotated[str, Query(alias="filter", max_length=20_000, description="filter as JSON")] = "",
    texts: Annotated[bool, Query(description="return stored texts with marks, and attributes")] = False,
    facets: Annotated[bool, Query(description="count the values of string and bool attributes")] = False,
) -> SearchAnswer:
    """Return the best documents for a text."""
    began = time.perf_counter()
    backend: Backend = app.state.backend
    version = backend.searcher(side).version
    options: dict[str, Any] = {"overlap_threshold": threshold, "min_terms": min_terms, "filter": _filter(condition)}
    if hybrid:
        options["hybrid"] = Hybrid()
    if texts:
        fields = text_fields(backend.searcher(side))
        options |= {"fields": [*fields, *version.attributes], "highlight": fields}
    if facets:
        options["facets"] = [name for name, kind in version.attributes.items() if kind in FACETED][:16]
    result = await backend.search(side, q, k, **options)
    return answer(result, version.attributes, (time.perf_counter() - began) * 1e3)


@app.get("/explain")
async def explain(q: Text, doc_id: str, side: Side = "a", hybrid: bool = False) -> ExplainAnswer:
    """Return what each term adds to the score of a document."""
    words = Hybrid() if hybrid else None
    return explained(await app.state.backend.explain(side, q, doc_id, hybrid=words))


@app.get("/health")
async def health() -> Any:
    """Return what this worker serves; ``problem`` is the reason why it does not follow."""
    backend: Backend = app.state.backend
    publication = backend.sides["a"].publication
    return {"pid": os.getpid(), "publication": publication.number, "problem": backend.problem}


@app.get("/metrics")
async def metrics() -> Response:
    """Return the metrics of all workers if ``PROMETHEUS_MULTIPROC_DIR`` is set, else of this one."""
    registry = app.state.backend.metrics
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _filter(text: str) -> Filter | None:
    """Return the filter of a request."""
    if not text:
        return None
    try:
        return filter_from_json(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"filter is not JSON ({error})") from error
    except QueryError as error:
        raise HTTPException(400, str(error)) from error
