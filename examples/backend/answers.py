"""Answers of the API, and how they are made of results of the library."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from lsr_prod.search import Explanation, Hit, Searcher, SearchResult

_SNIPPET = 400  # characters of a field in an answer
_BEFORE = 80  # of them, before the first place to mark


class Part(BaseModel):
    """A piece of a text; ``mark``: it is a word of the query. Offsets would differ in the characters of clients."""

    text: str
    mark: bool


class TextAnswer(BaseModel):
    """A stored text, cut around the first word of the query."""

    name: str
    parts: list[Part]
    cut: bool


class HitAnswer(BaseModel):
    """A document; ``texts`` and ``attributes`` only on request."""

    doc_id: str
    score: float
    overlap: int
    texts: list[TextAnswer] = []
    attributes: dict[str, Any] = {}


class TermAnswer(BaseModel):
    """A term of the expanded query, or with ``field: text`` a word of a hybrid search."""

    term: str
    weight: float
    field: str


class FacetAnswer(BaseModel):
    """The most frequent values of an attribute with their numbers of matching documents."""

    name: str
    values: list[tuple[Any, int]]
    missing: int


class SearchAnswer(BaseModel):
    """The answer of one version; see ``lsr_prod.search.SearchResult``."""

    hits: list[HitAnswer]
    version: str
    partial: bool
    matched: int
    matched_exact: bool
    required: int
    terms: list[TermAnswer]
    facets: list[FacetAnswer]
    encode_ms: float
    match_ms: float
    fetch_ms: float
    total_ms: float


class ContributionAnswer(BaseModel):
    """Contribution of a term to the score: weights of query and document, times that of its part in a hybrid."""

    term: str
    weight: float
    document_weight: float
    score: float
    field: str


class ExplainAnswer(BaseModel):
    """The parts of a score; ``missing``: terms of the query that the document does not have."""

    doc_id: str
    score: float
    contributions: list[ContributionAnswer]
    missing: list[str]


class SideAnswer(BaseModel):
    """An index that this worker serves; ``hybrid``: it has postings of words."""

    name: str
    publication: int
    version: str
    documents: int
    fields: list[str]
    attributes: dict[str, str]
    hybrid: bool


class IndexAnswer(BaseModel):
    """The indexes that this worker serves."""

    a: SideAnswer
    b: SideAnswer | None


def text_fields(searcher: Searcher) -> list[str]:
    """Return the stored fields that hold texts to read: those of the words, and all that are no attributes."""
    version = searcher.version
    return [name for name in version.stored_fields if name in version.text_fields or name not in version.attributes]


def describe(searcher: Searcher, name: str) -> SideAnswer:
    """Return what an index has."""
    version, publication = searcher.version, searcher.publication
    return SideAnswer(
        name=name,
        publication=publication.number,
        version=publication.version,
        documents=searcher.documents,
        fields=text_fields(searcher),
        attributes=dict(version.attributes),
        hybrid=version.average_length is not None,
    )


def answer(result: SearchResult, attributes: Mapping[str, str], total_ms: float) -> SearchAnswer:
    """Return the answer for a result."""
    return SearchAnswer(
        hits=[_hit(hit, attributes) for hit in result.hits],
        version=result.version,
        partial=result.partial,
        matched=result.matched,
        matched_exact=result.matched_exact,
        required=result.required,
        terms=[TermAnswer(term=each.term, weight=each.weight, field=each.field) for each in result.query],
        facets=[FacetAnswer(name=each.name, values=list(each.values), missing=each.missing) for each in result.facets],
        encode_ms=result.encode_ms,
        match_ms=result.match_ms,
        fetch_ms=result.fetch_ms,
        total_ms=total_ms,
    )


def explained(found: Explanation) -> ExplainAnswer:
    """Return the answer for an explanation, the largest contribution first."""
    contributions = sorted(found.contributions, key=lambda each: -each.score)
    return ExplainAnswer(
        doc_id=found.doc_id,
        score=found.score,
        contributions=[
            ContributionAnswer(
                term=each.term,
                weight=each.weight,
                document_weight=each.document_weight,
                score=each.score,
                field=each.field,
            )
            for each in contributions
        ],
        missing=list(found.missing),
    )


def _hit(hit: Hit, attributes: Mapping[str, str]) -> HitAnswer:
    spans = hit.highlights or {}
    return HitAnswer(
        doc_id=hit.doc_id,
        score=hit.score,
        overlap=hit.overlap,
        texts=[
            _snippet(name, value, spans.get(name, ()))
            for name, value in hit.fields.items()
            if name not in attributes and isinstance(value, str) and value
        ],
        attributes={name: value for name, value in hit.fields.items() if name in attributes and value is not None},
    )


def _snippet(name: str, text: str, spans: tuple[tuple[int, int], ...]) -> TextAnswer:
    """Cut a text around its first mark, and divide it into marked and other pieces."""
    first = spans[0][0] if spans else 0
    start = 0 if first < _SNIPPET else text.rfind(" ", 0, first - _BEFORE) + 1
    start = max(start, first - _SNIPPET // 2) if start else 0  # a text may have no space
    end = start + _SNIPPET
    parts, place = [], start
    for begin, stop in spans:
        if begin >= end:
            break
        parts += [Part(text=text[place:begin], mark=False), Part(text=text[begin:stop], mark=True)]
        place = stop
    parts.append(Part(text=text[place : max(end, place)], mark=False))
    if start:
        parts.insert(0, Part(text="… ", mark=False))
    if end < len(text):
        parts.append(Part(text=" …", mark=False))
    return TextAnswer(name=name, parts=[part for part in parts if part.text], cut=start > 0 or end < len(text))
