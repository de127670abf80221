"""Search options: how to match and rank, and what to return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Real
from typing import Any, Literal, TypedDict

import numpy as np

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filters import Cursor, Filter, check_names, check_options, shorten
from lsr_prod.search.query.sparse_query import MAX_K, check_k, check_qk, required_terms

_PLAIN = {int, float, str, bool, type(None)}
_MAX_SCORE = 3.0e38
_MAX_DEADLINE = 1e9
_MAX_FACETS, _FACET_SIZE, _MAX_FACET_SIZE = 16, 10, 1_000
_CONSTANT, _DEPTH = 60.0, 100  # of reciprocal rank fusion
_MIN_WEIGHT, _MAX_WEIGHT = 1e-6, 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """Rank also by the BM25 score of the words in the query's text.

    A document matches if it shares a term or a word. With an overlap threshold it must share the required number of
    terms; words do not count.

    Examples:
        >>> from lsr_prod import Index
        >>> with Index.from_texts(["hold locks", "parse a date"], bm25=True) as searcher:
        ...     [hit.doc_id for hit in searcher.search("a lock", hybrid=Hybrid(words=2.0)).hits]  # by stem: locks
        ['1', '0']

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
    constant: float = _CONSTANT
    depth: int = _DEPTH

    def __post_init__(self) -> None:
        if not isinstance(self.fusion, str) or self.fusion not in ("sum", "rrf"):
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
        for name, default in (("constant", _CONSTANT), ("depth", _DEPTH)):
            if self.fusion == "sum" and getattr(self, name) != default:
                raise QueryError(f"hybrid.{name} is a setting of fusion='rrf' and not used by 'sum'; leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of one search, validated on creation."""

    k: int = 10  # maximum number of hits, 0..10,000
    overlap_threshold: float = 0.0  # share of the query's terms that a document must share, 0..1; 0: off
    min_terms: int = 1  # number of the query's terms that a document must share
    qk: int | None = None  # number of query terms kept, heaviest first; None: all
    # share of the weight of these terms, above 0 to 1: only the fewest that hold it are kept, heaviest first; 1: all
    query_mass: float = 1.0
    filter: Filter | None = None  # only documents that pass the filter are found
    min_score: float = 0.0  # only documents with at least this score are found
    # share of the score that the query's terms can add whose postings are read, above 0 to 1, the terms that add most
    # first. 1: all, an exact search. Below 1 hits may be missed, but scores and overlaps are exact; ``matched`` is a
    # lower bound, and no page follows. Not with thresholds, ``count``, ``sort``, ``facets`` and ``search_after``, which
    # need all postings.
    scan_share: float = 1.0
    # number of documents to rescore, at least ``k``: found in all shards with ``qk`` query terms and ``dk`` terms
    # per document, then ranked by the whole query and all stored terms
    rescore: int | None = None
    # a stored field or attribute; of documents with the same value only the best is returned. Documents without a
    # value are all kept. Documents after the best 10,000 are not compared.
    deduplicate: str | None = None
    # milliseconds from the call after which the best documents found so far are returned; the encoding of texts
    # counts, and the queries of a batch share it
    deadline_ms: float | None = None
    count: bool = False  # count every match where lists are fused (``rrf``); all other searches count every match
    fields: Sequence[str] = ()  # stored fields and attributes to return with the hits
    hybrid: Hybrid | None = None  # rank also by the words of the text; not together with ``rescore``
    # number of hits to leave out before the first returned one; pages reach to hit 10,000, or to the end of the
    # list of ``rescore`` or ``rrf``
    offset: int = 0
    # ``next_page`` of the page before, with the same query and options; only its version is searched
    search_after: str | None = None
    # attribute that orders the hits instead of the score, ``-name`` with the largest value first; documents
    # without a value come last, ties by rising id. All matches are read.
    sort: str | None = None
    facets: Sequence[str] = ()  # up to 16 attributes whose values are counted over all matches, which are all read
    facet_size: int = _FACET_SIZE  # number of values per facet, the most frequent first, 1..1,000
    # stored fields in which to find the words of the query, and its terms that are whole words, by stem: up to
    # 100 places in the first 100,000 characters
    highlight: Sequence[str] = ()
    cursor: Cursor | None = field(init=False, repr=False, default=None)
    # hits are the best by the terms alone, without fields
    is_plain: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        self._set("k", check_k(self.k))
        self._set("qk", check_qk(self.qk))
        self._set("query_mass", _number("query_mass", self.query_mass, 1.0))
        if not self.query_mass:
            raise QueryError("query_mass=0 is not possible; give a number above 0, or 1 to keep all terms")
        self._set("min_terms", self.required(0))
        self._set("min_score", _number("min_score", self.min_score, _MAX_SCORE))
        self._set("scan_share", _number("scan_share", self.scan_share, 1.0))
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
        check_names("fields", self.fields)
        if _is_given(self.highlight):
            check_names("highlight", self.highlight, "stored fields")
        self._check_page()
        if self.sort is not None:
            self._check_sort(self.sort)
        if _is_given(self.facets) or type(self.facet_size) is not int or self.facet_size != _FACET_SIZE:
            self._check_facets()
        if not self.is_exact:
            self._check_scan_share()
        others = (self.filter, self.rescore, self.deduplicate, self.hybrid, self.cursor)
        with_values = self.needs_all_matches or len(self.fields) or len(self.highlight)
        self._set("is_plain", all(each is None for each in others) and not with_values)

    def _set(self, name: str, value: Any) -> None:
        """Store a plain Python value: numpy numbers overflow."""
        object.__setattr__(self, name, value)

    def _check_scan_share(self) -> None:
        if not self.scan_share:
            raise QueryError("scan_share=0 is not possible; give a number above 0, or 1 to read all postings")
        for name, given in (
            ("overlap_threshold", self.overlap_threshold > 0),
            ("min_terms", self.min_terms > 1),
            ("count", self.count),
            ("sort", self.sort is not None),
            ("facets", _is_given(self.facets)),
            ("search_after", self.search_after is not None),  # a longer list may have more hits before that place
        ):
            if given:
                raise QueryError(
                    f"scan_share={self.scan_share:g} leaves out postings that {name} needs; give scan_share=1, or "
                    f"leave {name} out"
                )

    def _check_page(self) -> None:
        self._set("offset", check_k(self.offset, "offset"))
        if self.search_after is not None:
            self._set("cursor", Cursor.read(self.search_after))
            if self.offset:
                raise QueryError(f"offset={self.offset} and search_after both name a page; give one of them")
        if self.reach > MAX_K:
            raise QueryError(
                f"offset={self.skipped} with k={self.k} passes hit {MAX_K}, the last of all pages; give a smaller k, "
                "or a filter or a threshold that leaves fewer documents"
            )

    def _check_sort(self, sort: str) -> None:
        if not isinstance(sort, str):
            raise QueryError(f"sort={shorten(sort)} is not possible; give the name of an attribute, or -name")
        fused = self.hybrid is not None and self.hybrid.fusion == "rrf"
        given = (("rescore", self.rescore is not None), ("deduplicate", self.deduplicate is not None), ("rrf", fused))
        for name, conflict in given:
            if conflict:
                raise QueryError(f"sort orders all matches by an attribute and excludes {name}; give one of them")

    def _check_facets(self) -> None:
        check_names("facets", self.facets, "attributes")
        if len(self.facets) > _MAX_FACETS:
            raise QueryError(f"{len(self.facets)} facets are too many; give at most {_MAX_FACETS}")
        self._set("facet_size", check_k(self.facet_size, "facet_size"))
        if not 1 <= self.facet_size <= _MAX_FACET_SIZE:
            raise QueryError(
                f"facet_size={self.facet_size} is not possible; give an integer from 1 to {_MAX_FACET_SIZE}"
            )
        if not self.facets and self.facet_size != _FACET_SIZE:
            raise QueryError(f"facet_size={self.facet_size} is not used without facets; give facets, or leave it out")

    def _check_hybrid(self, hybrid: Hybrid) -> None:
        check_hybrid(hybrid)
        if self.rescore is not None:
            raise QueryError(
                "rescore uses the encoder's terms only and cannot follow a hybrid search; give one of them"
            )
        if hybrid.fusion == "rrf" and hybrid.depth < self.k:
            raise QueryError(f"hybrid.depth={hybrid.depth} is less than k={self.k}; give at least k")

    @property
    def is_exact(self) -> bool:
        """True if the postings of all terms are read."""
        return self.scan_share == 1

    @property
    def needs_all_matches(self) -> bool:
        """True if hits are sorted by an attribute, or values are counted."""
        return self.sort is not None or bool(self.facets)

    @property
    def skipped(self) -> int:
        """Number of hits before the first returned one."""
        return self.offset if self.cursor is None else self.cursor.rank

    @property
    def reach(self) -> int:
        """Number of documents to rank: the hits and those before them."""
        return self.skipped + self.k

    @property
    def has_threshold(self) -> bool:
        """True if documents must share more than one term, or a share of the terms."""
        return self.overlap_threshold > 0 or self.min_terms > 1

    def deadline(self, start: float) -> float | None:
        """Return the ``time.monotonic()`` after which to stop a call that began at ``start``; None: no deadline."""
        return None if self.deadline_ms is None else start + self.deadline_ms / 1e3

    def required(self, size: int) -> int:
        """Return the number of terms that a document must share with a query of ``size`` terms."""
        return required_terms(size, overlap_threshold=self.overlap_threshold, min_terms=self.min_terms)


class _MatchOptions(TypedDict, total=False):
    overlap_threshold: float
    min_terms: int
    qk: int | None
    filter: Filter | None
    deadline_ms: float | None


class CountOptions(_MatchOptions, total=False):
    """Keywords of ``Searcher.count``; see ``Request``."""

    hybrid: Hybrid | None
    query_mass: float


class ArrayOptions(_MatchOptions, total=False):
    """Keywords of ``Searcher.search_arrays``; see ``Request``."""

    min_score: float
    scan_share: float
    offset: int


class Options(CountOptions, ArrayOptions, total=False):
    """Keyword arguments of every search; see ``Request``.

    Examples:
        >>> from lsr_prod import Index
        >>> from lsr_prod.search import Options
        >>> strict: Options = {"overlap_threshold": 1.0, "fields": ["text"]}
        >>> with Index.from_texts(["hold a lock", "parse a date"]) as searcher:
        ...     [hit.fields for hit in searcher.search("hold lock", **strict).hits]
        [{'text': 'hold a lock'}]
    """

    rescore: int | None
    deduplicate: str | None
    count: bool
    fields: Sequence[str]
    search_after: str | None
    sort: str | None
    facets: Sequence[str]
    facet_size: int
    highlight: Sequence[str]


OPTIONS = frozenset(Options.__annotations__)


def check_hybrid(hybrid: Any) -> None:
    """Require the settings of a hybrid search."""
    if not isinstance(hybrid, Hybrid):
        raise QueryError(f"hybrid={shorten(hybrid)} is not possible; give Hybrid(), with weights if you have some")


def make_request(k: int, options: Mapping[str, Any]) -> Request:
    """Return ``Request(k=k, **options)``; equal requests of plain values are validated once."""
    if type(k) is not int or not all(type(value) in _PLAIN for value in options.values()):
        check_options("search", options, OPTIONS)
        return Request(k=k, **options)
    return _known_request(k, tuple([(name, value, type(value)) for name, value in options.items()]))


@lru_cache(256)
def _known_request(k: int, options: tuple[tuple[str, Any, type], ...]) -> Request:
    check_options("search", (name for name, _, _ in options), OPTIONS)
    return Request(k=k, **{name: value for name, value, _ in options})


def _is_given(names: Any) -> bool:
    """Return whether a list of names is not the default; arrays cannot be compared with it."""
    return type(names) is not tuple or bool(names)


def _number(name: str, value: float, largest: float) -> float:
    if type(value) is float and 0 <= value <= largest:
        return value
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value <= largest:  # NaN too
        raise QueryError(f"{name}={shorten(value)} is not possible; give a number from 0 to {largest:g}")
    return float(value)
