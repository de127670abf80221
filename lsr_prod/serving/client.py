"""``ServedSearcher``: the searches of the embedded ``Searcher``, answered by a Serve application."""

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
from lsr_prod.serving.wire import error_from_json, question_to_json, result_from_json

__all__ = ["ServedSearcher"]


class ServedSearcher:
    """A client of a served index, in a process that is connected to its Ray cluster. Safe to share between threads.

    Hits are those of the embedded ``Searcher`` on the version that the answer names; ``encode_ms``, ``match_ms`` and
    ``fetch_ms`` are the router's.
    """

    def __init__(self, handle: DeploymentHandle[Any], *, attempts: int = 5, timeout_s: float = 60) -> None:
        """Ask a router.

        Args:
            handle: of the application's router; ``connect`` finds it.
            attempts: times that a question is sent while routers die.
            timeout_s: seconds for an answer.
        """
        self._handle = handle
        self._attempts = attempts
        self._timeout_s = timeout_s

    @classmethod
    def connect(cls, name: str = "lsr_prod", *, attempts: int = 5, timeout_s: float = 60) -> "ServedSearcher":
        """A client of a running application; see ``serve.name``."""
        return cls(serve.get_app_handle(name), attempts=attempts, timeout_s=timeout_s)

    def search(self, text: str, k: int = 10, **options: Unpack[Options]) -> SearchResult:
        """Encode a text and search; see ``Searcher.search``.

        Raises:
            QueryError: an argument is outside its range, or ``text`` is no text.
            ArtifactError: the index is damaged.
            UnavailableError: no replica answered.
        """
        return self._ask(question_to_json(k, options, text=text))[0]

    def search_batch(self, texts: Sequence[str], k: int = 10, **options: Unpack[Options]) -> list[SearchResult]:
        """Encode many texts in one batch and search for each, in one version; see ``Searcher.search_batch``."""
        return self._ask(question_to_json(k, options, texts=list(texts)))

    def search_vector(
        self, vector: Vector, k: int = 10, *, text: str | None = None, **options: Unpack[Options]
    ) -> SearchResult:
        """Search with weights given; see ``Searcher.search_vector``."""
        check_words(text, options.get("hybrid"))
        words = {} if text is None else {"text": text}
        return self._ask(question_to_json(k, options, vector=vector, **words))[0]

    def count(self, query: str | Vector, *, text: str | None = None, **options: Unpack[Options]) -> int:
        """Documents that match a text or a vector; see ``Searcher.count``."""
        options["count"] = True
        if isinstance(query, str):
            return self.search(query, 0, **options).matched
        return self.search_vector(query, 0, text=text, **options).matched

    def _ask(self, question: dict[str, Any]) -> list[SearchResult]:
        answer = self._send(question)
        if "error" in answer:
            raise error_from_json(answer)
        return [result_from_json(result) for result in answer["results"]]

    def _send(self, question: dict[str, Any]) -> dict[str, Any]:
        end = time.monotonic() + self._timeout_s
        for attempt in range(self._attempts):
            try:
                left = max(0.0, end - time.monotonic())
                answer: dict[str, Any] = self._handle.ask.remote(question).result(timeout_s=left)
            except LOST:
                time.sleep(pause(attempt))
            except TimeoutError as error:
                raise UnavailableError(f"no router answered within {self._timeout_s} s; look at its log") from error
            except RayTaskError as error:
                raise own_error(error) from error
            else:
                return answer
        raise UnavailableError(f"{self._attempts} routers were lost with the same question; look at their logs")
