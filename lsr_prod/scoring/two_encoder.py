"""Teacher that encodes queries and documents separately: scores are dot products of their vectors."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lsr_prod.formats.card import Kind

_KEPT = 200_000  # vectors; of texts that occur again in the same part


class TextVectors(Protocol):
    """Encoder of queries and documents."""

    def encode(self, texts: Sequence[str], kind: Kind) -> tuple[dict[int, Any], dict[int, str]]:
        """Return the vectors by position; and, by position, why a text has none."""

    def dot(self, query: Any, document: Any) -> float:
        """Return the dot product of two vectors."""


class TwoEncoder:
    """A teacher over an encoder; the vectors of texts are kept until ``forget``, so each is encoded once per part."""

    def __init__(self, encoder: TextVectors) -> None:
        self._encoder = encoder
        self._vectors: dict[tuple[Kind, str], Any] = {}
        self._failed: dict[tuple[Kind, str], str] = {}

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
        """Return the dot products of pairs, as ``teacher.Teacher`` defines it."""
        if len(self._vectors) > _KEPT:
            self.forget()
        self._encode([query for query, _ in pairs], "query")
        self._encode([document for _, document in pairs], "document")
        scores = np.full(len(pairs), np.nan, np.float32)
        failed: dict[int, str] = {}
        for i, (query, document) in enumerate(pairs):
            keys: list[tuple[Kind, str]] = [("query", query), ("document", document)]
            if problems := [f"{key[0]}: {self._failed[key]}" for key in keys if key in self._failed]:
                failed[i] = problems[0]
            else:
                scores[i] = self._encoder.dot(self._vectors[keys[0]], self._vectors[keys[1]])
        return scores, failed

    def forget(self) -> None:
        """Drop all vectors."""
        self._vectors.clear()
        self._failed.clear()

    def _encode(self, texts: Sequence[str], kind: Kind) -> None:
        keys = [(kind, text) for text in dict.fromkeys(texts)]
        new = [key for key in keys if key not in self._vectors and key not in self._failed]
        if not new:
            return
        vectors, failed = self._encoder.encode([text for _, text in new], kind)
        self._vectors.update({new[i]: vector for i, vector in vectors.items()})
        self._failed.update({new[i]: problem for i, problem in failed.items()})
