"""Search options: how to match and rank, and what to return."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.query.sparse_query import check_k, check_qk, required_terms

if TYPE_CHECKING:
    from lsr_prod.search.query.filters import Filter

__all__ = ["Hybrid", "Options", "Request"]

_MAX_SCORE = 3.0e38
_MAX_DEADLINE = 1e9
_MIN_WEIGHT, _MAX_WEIGHT = 1e-6, 1e6


class Options(TypedDict, total=False):
    """Keyword arguments of every search; see ``Request``."""

    overlap_threshold: float
    min_terms: int
    qk: int | None
    filter: "Filter | None"
    min_score: float
    rescore: int | None
    deduplicate: str | None
    deadline_ms: float | None
    count: bool
    fields: Sequence[str]
    hybrid: "Hybrid | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """Rank also by the BM25 score of the words in the query's text.

    A document matches if it shares a term or a word. With an overlap threshold it must share the required number of
    terms; words do not count.

    Attributes:
        fusion: ``sum``: a score is ``terms`` x encoder score + ``words`` x BM25 score, in one pass. ``rrf`` (reciprocal
            rank fusion): a score is the sum of weight / (``constant`` + rank) over the two lists of the best ``depth``
            documents, ranks from 1; the scales of the two scores do not matter.
        terms: weight of the encoder's terms.
        words: weight of the words.
        constant: constant of ``rrf``.
        depth: length of the lists of ``rrf``; at least ``k``.

    Raises:
        QueryError: a value is outside its range.
    """

    fusion: Literal["sum", "rrf"] = "sum"
    terms: float = 1.0
    words: float = 1.0
    constant: float = 60.0
    depth: int = 100

    def __post_init__(self) -> None:
        """Validate all values."""
        if self.fusion not in ("sum", "rrf"):
            raise QueryError(f"hybrid.fusion={shorten(self.fusion)} is not possible; give 'sum' or 'rrf'")
        for name in ("terms", "words"):
            weight = _number(f"hybrid.{name}", getattr(self, name), _MAX_WEIGHT)
            if weight < _MIN_WEIGHT:
                raise QueryError(
                    f"hybrid.{name}={weight:g} is too small; leave hybrid out, or use bm25() for words alone"
                )
            object.__setattr__(self, name, weight)
        object.__setattr__(self, "constant", _number("hybrid.constant", self.constant, _MAX_WEIGHT))
        object.__setattr__(self, "depth", check_k(self.depth, "hybrid.depth"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of one search, validated on creation.

    Attributes:
        k: maximum number of hits, 0..10,000.
        overlap_threshold: share of the query's terms that a document must share, 0..1; 0: off.
        min_terms: number of the query's terms that a document must share.
        qk: number of query terms kept, heaviest first; None: all.
        filter: only documents that pass the filter are found.
        min_score: only documents with at least this score are found.
        rescore: number of documents to rescore, at least ``k``: found in all shards with ``qk`` query terms and ``dk``
            terms per document, then ranked by the whole query and all stored terms.
        deduplicate: a stored field or attribute; of documents with the same value only the best is returned. Documents
            without a value are all kept.
        deadline_ms: milliseconds from the call after which the best documents found so far are returned.
        count: count every match; no document block is skipped, so the search is slower.
        fields: stored fields and attributes to return with the hits.
        hybrid: rank also by the words of the text; not together with ``rescore``.

    Raises:
        QueryError: a value is outside its range.
    """

    k: int = 10
    overlap_threshold: float = 0.0
    min_terms: int = 1
    qk: int | None = None
    filter: "Filter | None" = None
    min_score: float = 0.0
    rescore: int | None = None
    deduplicate: str | None = None
    deadline_ms: float | None = None
    count: bool = False
    fields: Sequence[str] = ()
    hybrid: Hybrid | None = None

    def __post_init__(self) -> None:
        """Validate all values."""
        self._set("k", check_k(self.k))
        self._set("qk", check_qk(self.qk))
        self._set("min_terms", self.required(0))
        self._set("min_score", _number("min_score", self.min_score, _MAX_SCORE))
        if self.deadline_ms is not None:
            self._set("deadline_ms", _number("deadline_ms", self.deadline_ms, _MAX_DEADLINE))
        if self.rescore is not None:
            self._set("rescore", check_k(self.rescore, "rescore"))
            if self.rescore < self.k:
                raise QueryError(f"rescore={self.rescore} is less than k={self.k}; give at least k")
        if self.deduplicate is not None and not isinstance(self.deduplicate, str):
            raise QueryError(f"deduplicate={shorten(self.deduplicate)} is not possible; give the name of a field")
        if not isinstance(self.count, (bool, np.bool_)):
            raise QueryError(f"count={shorten(self.count)} is not possible; give True or False")
        self._set("count", bool(self.count))
        if self.hybrid is not None:
            self._check_hybrid(self.hybrid)
        if not isinstance(self.fields, (list, tuple)) or not all(isinstance(name, str) for name in self.fields):
            raise QueryError(f"fields={shorten(self.fields)} is not possible; give a list of names")

    def _set(self, name: str, value: Any) -> None:
        """Store a plain Python value: numpy numbers overflow, and numba would compile the kernels again for them."""
        object.__setattr__(self, name, value)

    def _check_hybrid(self, hybrid: Hybrid) -> None:
        if not isinstance(hybrid, Hybrid):
            raise QueryError(f"hybrid={shorten(hybrid)} is not possible; give Hybrid(), with weights if you have some")
        if self.rescore is not None:
            raise QueryError(
                "rescore uses the encoder's terms only and cannot follow a hybrid search; give one of them"
            )
        if hybrid.fusion == "rrf" and hybrid.depth < self.k:
            raise QueryError(f"hybrid.depth={hybrid.depth} is less than k={self.k}; give at least k")

    @property
    def has_threshold(self) -> bool:
        """True if documents must share more than one term, or a share of the terms."""
        return self.overlap_threshold > 0 or self.min_terms > 1

    def required(self, size: int) -> int:
        """Return the number of terms that a document must share with a query of ``size`` terms."""
        return required_terms(size, overlap_threshold=self.overlap_threshold, min_terms=self.min_terms)


def _number(name: str, value: float, largest: float) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value <= largest:  # NaN too
        raise QueryError(f"{name}={shorten(value)} is not possible; give a number from 0 to {largest:g}")
    return float(value)
