"""The page of one query: its expansion, its hits at every threshold, and what each term adds to each hit."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lsr_prod.search.query.search_request import Hybrid, Options
from lsr_prod.search.search_result import Hit, SearchResult
from lsr_prod.search.searcher import Searcher
from lsr_prod_contrib.pages.charts import bars, series
from lsr_prod_contrib.pages.sections import Chart, Page

Values = Mapping[str, Any]

_THRESHOLDS = 16  # numbers of shared terms that the slider offers
_LEAD = 300  # characters of a stored field that are shown at once
_TEXT = 2_000  # of a stored field that are in the page
_CHART_TERMS = 40  # of the expansion
_COLORS = 8  # of the chart of contributions; with more terms the last one is for all others
_DEPTH = 1_000  # of the lists in which the ranks of a hit are looked up
_OTHERS = "other terms"


def query_page(data: Values, *, name: str = "query") -> Page:
    """Return the page of the value of ``query_data``."""
    charts = {}
    if data["terms"]:
        charts["expansion"] = _expansion_chart(data["terms"])
    if data["hits"]:
        charts["contributions"] = _contribution_chart(data["hits"])
    return Page(name, f"Query: {data['query']}", "query.html.j2", data, charts, script="query.js")


def query_data(
    searcher: Searcher, text: str, *, k: int = 10, qk: int | None = None, hybrid: Hybrid | None = None
) -> dict[str, Any]:
    """Search with every number of shared terms up to 16, and explain all hits.

    Returns:
        Plain JSON values. ``hits`` has the hits at any number of shared terms, those of the search without a threshold
        first; ``ranks`` of a hit has its rank for 1, 2, … shared terms, None where it is not among the best k.
    """
    version = searcher.version
    options: Options = {"qk": qk, "hybrid": hybrid, "count": True, "fields": version.stored_fields}
    options["highlight"] = [
        name for name in version.stored_fields if version.attributes.get(name, "string") == "string"
    ]
    searcher.encode([text])  # opens the model, which is not timed
    timed = searcher.search(text, k, qk=qk, hybrid=hybrid)
    results = [searcher.search(text, k, **options)]
    terms = [term for term in results[0].query if term.field == "terms"]
    for required in range(2, min(len(terms), _THRESHOLDS) + 1):
        options["min_terms"] = required
        results.append(searcher.search(text, k, **options))
        if not results[-1].hits:
            break
    hits = {hit.doc_id: hit for result in results for hit in result.hits}
    lists = _lists(searcher, text, qk, hybrid)
    shown = [_hit(searcher, text, hit, qk, hybrid, results, lists) for hit in hits.values()]
    return {
        "query": text,
        "version": results[0].version,
        "documents": searcher.documents,
        "k": k,
        "qk": qk,
        "hybrid": None if hybrid is None else {"terms": hybrid.terms, "words": hybrid.words},
        "encode_ms": timed.encode_ms,
        "match_ms": timed.match_ms,
        "terms": [term._asdict() for term in results[0].query],
        "thresholds": [{"required": n, "matched": result.matched} for n, result in enumerate(results, 1)],
        "lists": list(lists),
        "largest": max((part["score"] for hit in shown for part in hit["contributions"]), default=0.0),
        "hits": shown,
    }


def _lists(searcher: Searcher, text: str, qk: int | None, hybrid: Hybrid | None) -> dict[str, dict[str, Any]]:
    """Return the lists that a hybrid combines: name -> id -> rank and score; none if the index has no words."""
    if searcher.version.average_length is None:
        return {}
    depth = min(_DEPTH, max(1, searcher.documents))
    found = {
        "sparse": searcher.search(text, depth, qk=qk),
        "BM25": searcher.bm25(text, depth),
        "hybrid": searcher.search(text, depth, qk=qk, hybrid=hybrid or Hybrid()),
    }
    return {
        name: {hit.doc_id: {"rank": rank, "score": hit.score} for rank, hit in enumerate(result.hits, 1)}
        for name, result in found.items()
    }


def _hit(
    searcher: Searcher,
    text: str,
    hit: Hit,
    qk: int | None,
    hybrid: Hybrid | None,
    results: Sequence[SearchResult],
    lists: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return a hit with its rank at every threshold, the parts of its score, and its texts."""
    explanation = searcher.explain(text, hit.doc_id, qk=qk, hybrid=hybrid)
    ranks = [next((r for r, one in enumerate(result.hits, 1) if one.doc_id == hit.doc_id), None) for result in results]
    parts = sorted(explanation.contributions, key=lambda part: -part.score)
    return {
        "doc_id": hit.doc_id,
        "score": explanation.score,
        "overlap": explanation.overlap,
        "ranks": ranks,
        "contributions": [asdict(part) for part in parts],
        "missing": list(explanation.missing),
        "lists": {name: found.get(hit.doc_id) for name, found in lists.items()},
        "fields": [
            _field(name, str(value), (hit.highlights or {}).get(name, ()))
            for name, value in hit.fields.items()
            if value is not None and value != ""
        ],
    }


def _field(name: str, text: str, spans: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the start of a text as ``lead``, and the text as ``pieces`` if it is longer."""
    lead = pieces(text, spans, _LEAD)
    return {"name": name, "lead": lead, "pieces": pieces(text, spans, _TEXT) if len(text) > _LEAD else []}


def pieces(text: str, spans: Sequence[tuple[int, int]], characters: int) -> list[dict[str, Any]]:
    """Cut a text into highlighted and other pieces."""
    found, end = [], 0
    for start, stop in spans:
        if stop > characters:
            break
        found += [{"text": text[end:start], "marked": False}, {"text": text[start:stop], "marked": True}]
        end = stop
    found.append({"text": text[end:characters] + ("…" if len(text) > characters else ""), "marked": False})
    return [piece for piece in found if piece["text"]]


def _label(term: Values) -> str:
    """Return a term as charts name it: a word is told from the encoder's term of the same letters."""
    return f"{term['term']} (word)" if term["field"] == "text" else str(term["term"])


def _expansion_chart(terms: Sequence[Values]) -> Chart:
    shown = terms[:_CHART_TERMS]
    kinds = {"terms": "term", "text": "word"}
    rows = [{"label": _label(term), "kind": kinds[term["field"]], "weight": term["weight"]} for term in shown]
    number = f"{len(terms)} terms" if len(shown) == len(terms) else f"The first {len(shown)} of {len(terms)} terms"
    about = f"{number} of the encoded query, the heaviest first: {', '.join(row['label'] for row in rows[:5])}."
    present = [kind for kind in kinds.values() if any(row["kind"] == kind for row in rows)]
    color = series("kind", "Kind", present) if len(present) > 1 else None
    spec = bars("weight", "label", value_title="weight in the query", rows=len(rows), color=color)
    return Chart("Expansion of the query", about, {"label": "Term", "kind": "Kind", "weight": "Weight"}, rows, spec)


def _contribution_chart(hits: Sequence[Values]) -> Chart:
    """Stacked bars per hit of the search without a threshold; the terms that add most have a color."""
    shown = [hit for hit in hits if hit["ranks"][0] is not None]
    totals: dict[str, float] = {}
    for hit in shown:
        for part in hit["contributions"]:
            totals[_label(part)] = totals.get(_label(part), 0.0) + part["score"]
    names = sorted(totals, key=lambda name: -totals[name])[: _COLORS if len(totals) <= _COLORS else _COLORS - 1]
    rows = []
    for hit in shown:
        parts = [{"term": _label(part), "score": part["score"]} for part in hit["contributions"]]
        rest = sum(part["score"] for part in parts if part["term"] not in names)
        kept = [part for part in parts if part["term"] in names] + ([{"term": _OTHERS, "score": rest}] if rest else [])
        rows += [{"hit": f"{hit['ranks'][0]}. {hit['doc_id']}", **part} for part in kept]
    about = f"One bar per hit; its parts add up to the score. The terms that add most: {', '.join(names[:5])}."
    color = series("term", "Term", [*names, *([_OTHERS] if len(totals) > len(names) else [])])
    return Chart(
        "Contribution of each term to each hit",
        about,
        {"hit": "Hit", "term": "Term", "score": "Contribution"},
        rows,
        bars("score", "hit", value_title="score", rows=len(shown), color=color),
    )
