"""Requests and responses of the operations other than search, as plain JSON values.

``bm25``: an object with ``text``, ``k``, ``count``, ``fields``; the response is that of a search. ``explain``: ``text``
or ``vector``, or both with ``hybrid``, and ``doc_id``, ``qk``; the response is ``{"explanation": {...}}``. ``encode``:
``texts``; the response is ``{"queries": [...]}``, each with ``terms``, ``ids`` and ``weights``.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BeforeValidator, Field, InstanceOf, StrictBool, StrictStr, model_validator

from lsr_prod.errors import QueryError
from lsr_prod.search.query.request import Hybrid
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.result import Contribution, Explanation
from lsr_prod.serving.wire import MAX_TEXTS
from lsr_prod.serving.wire_values import WireValue, read_hybrid, read_vector


class Bm25Request(WireValue):
    """Arguments of ``Searcher.bm25``."""

    text: Any
    k: Any = 10
    count: StrictBool = False
    fields: list[Any] = Field(default_factory=list)


class EncodeRequest(WireValue):
    """Arguments of ``Searcher.encode``."""

    texts: list[Any]

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if len(self.texts) > MAX_TEXTS:
            raise QueryError(f"the request has {len(self.texts)} texts; send at most {MAX_TEXTS} at a time")
        return self


class ExplainRequest(WireValue):
    """Arguments of ``Searcher.explain``."""

    doc_id: StrictStr
    text: Any = None
    vector: Annotated[dict[Any, Any] | None, BeforeValidator(read_vector)] = None
    qk: Any = None
    hybrid: Annotated[InstanceOf[Hybrid] | None, BeforeValidator(read_hybrid)] = None

    @model_validator(mode="after")
    def _has_one_query(self) -> Self:
        both = self.text is not None and self.vector is not None
        if both != (self.hybrid is not None and self.vector is not None) or (self.text is None and self.vector is None):
            raise QueryError("give a text or a vector to explain, or both with hybrid")
        return self


def query_to_json(query: SparseQuery) -> dict[str, Any]:
    """Return an encoded query as a JSON value."""
    return {"terms": list(query.terms), "ids": query.ids.tolist(), "weights": query.weights.tolist()}


def query_from_json(value: Mapping[str, Any]) -> SparseQuery:
    """Read a query that ``query_to_json`` wrote."""
    return SparseQuery(np.array(value["ids"], np.int32), np.array(value["weights"], np.float32), tuple(value["terms"]))


def explanation_to_json(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as a JSON value."""
    return asdict(explanation)


def explanation_from_json(value: Mapping[str, Any]) -> Explanation:
    """Read an explanation that ``explanation_to_json`` wrote."""
    contributions = tuple(Contribution(**each) for each in value["contributions"])
    rest = {name: tuple(value[name]) for name in ("missing", "ranks")}
    return Explanation(**{**value, **rest, "contributions": contributions})
