"""A search backend: FastAPI with an embedded index, one ``Searcher`` per worker process.

::

    cd examples/backend
    LSR_INDEX=/data/index uvicorn app:app --workers 2
    LSR_INDEX=/data/index gunicorn --config gunicorn.conf.py app:app

The environment has the settings: ``LSR_INDEX`` (folder or URI), ``LSR_POLL_SECONDS``, ``LSR_THREADS`` and
``LSR_WAITING``.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest, multiprocess

from lsr_prod.errors import QueryError
from lsr_prod.search import PrometheusObserver, Searcher, SearchResult


class Backend:
    """The index of one worker process, its threads, and the requests that it admits."""

    def __init__(self, index: str, *, threads: int, waiting: int, poll_seconds: float) -> None:
        """Open the index and its encoder.

        Args:
            index: folder or URI.
            threads: searches that run at the same time.
            waiting: searches that wait at most.
            poll_seconds: seconds between two checks for a new publication.
        """
        self.metrics = CollectorRegistry()
        self.searcher = Searcher.open(index, observer=PrometheusObserver(self.metrics))
        self.searcher.warm()  # now, not in the first request
        self.follower = self.searcher.follow(poll_seconds)  # searches that run continue in their version
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="search")
        self._limit = threads + waiting
        self._admitted = 0

    async def search(self, text: str, k: int) -> SearchResult:
        """Search in a thread: the kernels release the GIL, so threads use several cores."""
        if self._admitted >= self._limit:
            raise HTTPException(503, "too many requests wait", {"Retry-After": "1"})
        self._admitted += 1
        try:
            work = partial(self.searcher.search, text, k, deadline_ms=1_000)
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except QueryError as error:
            raise HTTPException(400, str(error)) from error
        finally:
            self._admitted -= 1

    def close(self) -> None:
        """Wait for running searches, and release the index; the thread that follows ends."""
        self._pool.shutdown()
        self.searcher.close()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the index in the worker, after a fork; threads and locks do not survive one."""
    backend = Backend(
        os.environ["LSR_INDEX"],
        threads=int(os.environ.get("LSR_THREADS", "2")),
        waiting=int(os.environ.get("LSR_WAITING", "64")),
        poll_seconds=float(os.environ.get("LSR_POLL_SECONDS", "5")),
    )
    app.state.backend = backend
    try:
        yield
    finally:
        backend.close()


app = FastAPI(lifespan=lifespan)


@app.get("/search")
async def search(q: Annotated[str, Query(max_length=10_000)], k: Annotated[int, Query(ge=1, le=100)] = 10) -> Any:
    """Return the best documents for a text."""
    result = await app.state.backend.search(q, k)
    hits = [{"doc_id": hit.doc_id, "score": hit.score} for hit in result.hits]
    return {"hits": hits, "version": result.version, "partial": result.partial}


@app.get("/health")
async def health() -> Any:
    """Return what this worker serves; ``problem`` is the reason why it does not follow."""
    backend: Backend = app.state.backend
    publication = backend.searcher.publication
    return {"pid": os.getpid(), "publication": publication.number, "problem": backend.follower.problem}


@app.get("/metrics")
async def metrics() -> Response:
    """Return the metrics of all workers if ``PROMETHEUS_MULTIPROC_DIR`` is set, else of this one."""
    registry = app.state.backend.metrics
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
