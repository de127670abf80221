"""The deployment that answers: it encodes, pins a version, scatters to the shard groups and merges."""

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.serve.handle import DeploymentHandle

from lsr_prod.errors import LsrError, QueryError
from lsr_prod.search.candidates import Shards
from lsr_prod.search.result import SearchResult
from lsr_prod.search.searcher import Searcher
from lsr_prod.search.snapshot import Snapshot
from lsr_prod.serving.follow import Follower
from lsr_prod.serving.loopback import keep_internal_port_on_loopback
from lsr_prod.serving.scatter import Groups, ScatteredShards
from lsr_prod.serving.versions import Pin
from lsr_prod.serving.wire import Question, error_to_json, result_to_json
from lsr_prod.storage.publications import current_publication

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["Router", "ScatteringSearcher"]

_MAX_BODY = 8 << 20  # bytes of an HTTP request


class ScatteringSearcher(Searcher):
    """A ``Searcher`` that has opened no shard: its queries go to the shard groups, with the version that they read.

    ``explain``, ``bm25`` and ``match_tantivy`` read shards and are not for it.
    """

    def __init__(self, index: Path, groups: Groups, *, encoder_threads: int) -> None:
        """Open the current version.

        Args:
            index: the index folder.
            groups: where its shards are.
            encoder_threads: ONNX Runtime threads that encode one query.
        """
        snapshot = Snapshot(index, current_publication(index), shards=())
        super().__init__(snapshot, encoder_threads=encoder_threads)
        self._groups = groups

    def refresh(self) -> bool:
        """Follow the latest publication; see ``Searcher.refresh``."""
        with self._refresh_lock:
            before = self._snapshot
            publication = current_publication(before.index)
            if publication.version == before.publication.version:
                return False
            self._snapshot = Snapshot(before.index, publication, shards=())
            return True

    def _shards(self, snapshot: Snapshot) -> Shards:
        publication = snapshot.publication
        pin = Pin(publication.number, publication.version)
        return ScatteredShards(self._groups, pin, len(snapshot.version.shards))


class Router:
    """The entrance of the application: ``ask`` for handles, POST /search for HTTP."""

    def __init__(
        self,
        *groups: DeploymentHandle[Any],
        index: str,
        concurrency: int,
        encoder_threads: int,
        poll_seconds: float,
        attempts: int,
        timeout_s: float,
    ) -> None:
        """Open the current version; the encoder is opened by the first text.

        Args:
            *groups: the shard groups, in order.
            index: the index folder.
            concurrency: queries that are answered at once.
            encoder_threads: ONNX Runtime threads that encode one query.
            poll_seconds: seconds between two looks for a new publication.
            attempts: times that a call is sent while replicas die.
            timeout_s: seconds for a call.
        """
        keep_internal_port_on_loopback()
        calls = Groups(groups, attempts=attempts, timeout_s=timeout_s)
        self._searcher = ScatteringSearcher(Path(index), calls, encoder_threads=encoder_threads)
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="lsr-route")
        self._follower = Follower(self._searcher.refresh, poll_seconds)

    async def ask(self, question: Any) -> dict[str, Any]:
        """Answer a question; both are plain JSON values, see ``wire``. Errors of ours are answers too."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._answer, question)

    async def state(self) -> dict[str, Any]:
        """For people: the process, the version that queries read, the last failure to follow a publication."""
        publication = self._searcher.publication
        return {
            "pid": os.getpid(),
            "publication": publication.number,
            "version": publication.version,
            "documents": self._searcher.documents,
            "problem": self._follower.problem,
        }

    async def __call__(self, request: "Request") -> "Response":
        """POST /search: a question as JSON; 200 with the result (``results`` of ``texts``), 400 with what is wrong."""
        from starlette.responses import JSONResponse

        if (request.method, request.url.path) != ("POST", "/search"):
            return JSONResponse({"error": "NotFound", "message": "ask with POST /search"}, 404)
        try:
            question = _parse(await request.body())
        except QueryError as error:
            return JSONResponse(error_to_json(error), 400)
        answer = await self.ask(question)
        if "error" in answer:
            return JSONResponse(answer, {"QueryError": 400, "UnavailableError": 503}.get(answer["error"], 500))
        return JSONResponse(answer if "texts" in question else answer["results"][0])

    def _answer(self, value: Any) -> dict[str, Any]:
        try:
            return {"results": [result_to_json(result) for result in self._search(Question(value))]}
        except LsrError as error:
            return error_to_json(error)

    def _search(self, question: Question) -> list[SearchResult]:
        if question.texts is None:
            return [self._searcher.search_vector(question.vector, question.k, text=question.words, **question.options)]
        return self._searcher.search_batch(question.texts, question.k, **question.options)


def _parse(body: bytes) -> Any:
    """The JSON value of a request.

    Raises:
        QueryError: it is none, or too large.
    """
    if len(body) > _MAX_BODY:
        raise QueryError(f"the request has {len(body)} bytes; send at most {_MAX_BODY}")
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False).encode()  # the answer repeats terms: no lone surrogates
        return value
    except (ValueError, RecursionError) as error:
        raise QueryError(f"the request is no JSON ({error}); send an object with text or vector") from error
