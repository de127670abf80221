"""``ServedSearcher``: a client with the search methods of ``Searcher`` for a Serve application."""

import time
from collections.abc import Sequence
from typing import Any, Unpack

from ray import serve
from ray.exceptions import RayTaskError
from ray.serve.handle import DeploymentHandle

from lsr_prod.search.hybrid import check_words
from lsr_prod.search.query.request import Options
from lsr_prod.search.result import SearchResult
from lsr_prod.search.searcher import Vector
from lsr_prod.serving.calls import LOST, UnavailableError, own_error, pause
from lsr_prod.serving.wire import error_from_json, request_to_json, result_from_json

__all__ = ["ServedSearcher"]


class ServedSearcher:
    """A client of a served index, in a process that is connected to its Ray cluster. Safe to share between threads.

    Hits equal those of the embedded ``Searcher`` on the version that the result names; ``encode_ms``, ``match_ms`` and
    ``fetch_ms`` are the router's.
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
            UnavailableError: no replica answered.
        """
        return self._request(request_to_json(k, options, text=text))[0]

    def search_batch(self, texts: Sequence[str], k: int = 10, **options: Unpack[Options]) -> list[SearchResult]:
        """Encode many texts in one batch and search for each, in one version; see ``Searcher.search_batch``."""
        return self._request(request_to_json(k, options, texts=list(texts)))

    def search_vector(
        self, vector: Vector, k: int = 10, *, text: str | None = None, **options: Unpack[Options]
    ) -> SearchResult:
        """Search with given weights; see ``Searcher.search_vector``."""
        check_words(text, options.get("hybrid"))
        words = {} if text is None else {"text": text}
        return self._request(request_to_json(k, options, vector=vector, **words))[0]

    def count(self, query: str | Vector, *, text: str | None = None, **options: Unpack[Options]) -> int:
        """Count the documents that match a text or a vector; see ``Searcher.count``."""
        options["count"] = True
        if isinstance(query, str):
            return self.search(query, 0, **options).matched
        return self.search_vector(query, 0, text=text, **options).matched

    def _request(self, request: dict[str, Any]) -> list[SearchResult]:
        response = self._send(request)
        if "error" in response:
            raise error_from_json(response)
        return [result_from_json(result) for result in response["results"]]

    def _send(self, request: dict[str, Any]) -> dict[str, Any]:
        end = time.monotonic() + self._timeout_s
        for attempt in range(self._attempts):
            try:
                left = max(0.0, end - time.monotonic())
                response: dict[str, Any] = self._handle.answer.remote(request).result(timeout_s=left)
            except LOST:
                time.sleep(pause(attempt))
            except TimeoutError as error:
                raise UnavailableError(f"no router answered within {self._timeout_s} s; look at its log") from error
            except RayTaskError as error:
                raise own_error(error) from error
            else:
                return response
        raise UnavailableError(f"{self._attempts} routers were lost with the same request; look at their logs")
