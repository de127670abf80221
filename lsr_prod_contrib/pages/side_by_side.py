"""The side-by-side page: two versions or models, their hits for the same queries, and the terms that drifted."""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod_contrib.pages.charts import bars, series
from lsr_prod_contrib.pages.sections import Chart, Page

KEYS = ("a", "b", "k", "queries", "overlap", "wins", "losses", "ties", "rows", "terms")
"""Keys that the content of ``canary.json`` must have."""

_ROWS = 200  # queries in the page; the JSON file has them, too
_CHART_TERMS = 20
_LABELS = {
    "same": "= same rank",
    "left": "− not in B",
    "new": "+ new in B",
    "up": "▲ rank {rank} in {side}",
    "down": "▼ rank {rank} in {side}",
}

Values = Mapping[str, Any]


def side_by_side_page(result: Values, *, rows: int = _ROWS, name: str = "side-by-side") -> Page:
    """Return the page of a comparison."""
    texts = result.get("documents", {})
    ordered = sorted(result["rows"], key=lambda row: -row["change"])
    data = {
        **{key: result[key] for key in KEYS if key not in ("rows", "terms")},
        **{key: result.get(key) for key in ("rbo", "compared", "unchanged", "mean_a", "mean_b")},
        "measure": result.get("measure") or "",
        "judged": result.get("judged", result["wins"] + result["losses"] + result["ties"]),
        "sides": _side_rows(result.get("sides", {})),
        "rows": [_row(row, texts) for row in ordered[:rows]],
        "terms": list(result["terms"]),
        "document_terms": list(result.get("document_terms", ())),
    }
    charts = {"drift": _drift_chart(data["terms"])} if data["terms"] else {}
    title = f"Side by side: {result['a']} and {result['b']}"
    return Page(name, title, "side_by_side.html.j2", data, charts, script="side_by_side.js")


def _row(row: Values, texts: Values) -> dict[str, Any]:
    """Return a query with its hits paired by rank, each with its move."""
    ranks = {side: {hit["doc_id"]: hit["rank"] for hit in row[side]} for side in ("a", "b")}
    hits = {side: [_hit(hit, side, ranks, texts) for hit in row[side]] for side in ("a", "b")}
    length = max(len(hits["a"]), len(hits["b"]))
    difference = None if row["value_a"] is None or row["value_b"] is None else row["value_b"] - row["value_a"]
    return {
        **{key: row[key] for key in ("query_id", "text", "overlap", "change", "value_a", "value_b")},
        "difference": difference,
        "outcome": _outcome(difference),
        "new": sum(hit["move"] == "new" for hit in hits["b"]),
        "left": sum(hit["move"] == "left" for hit in hits["a"]),
        "moved": sum(hit["move"] in ("up", "down") for hit in hits["b"]),
        "pairs": [{"rank": n + 1, "a": _at(hits["a"], n), "b": _at(hits["b"], n)} for n in range(length)],
    }


def _hit(hit: Values, side: str, ranks: Mapping[str, Mapping[str, int]], texts: Values) -> dict[str, Any]:
    move, other = _move(side, hit["rank"], ranks["b" if side == "a" else "a"].get(hit["doc_id"]))
    return {
        "doc_id": hit["doc_id"],
        "score": hit["score"],
        "text": texts.get(hit["doc_id"], ""),
        "move": move,
        "label": _LABELS[move].format(rank=other, side="B" if side == "a" else "A"),
    }


def _move(side: str, rank: int, other: int | None) -> tuple[str, int | None]:
    """Return how a hit moved from side A to side B, and its rank on the other side."""
    if other is None:
        return ("left" if side == "a" else "new"), None
    if rank == other:
        return "same", other
    up = other < rank if side == "a" else rank < other
    return ("up" if up else "down"), other


def _outcome(difference: float | None) -> str:
    if difference is None:
        return ""
    return "tie" if abs(difference) <= 1e-9 else "win" if difference > 0 else "loss"


def _at(hits: Sequence[Values], place: int) -> Values | None:
    return hits[place] if place < len(hits) else None


def _side_rows(sides: Mapping[str, Values]) -> list[dict[str, Any]]:
    """Return one row per figure of both sides."""
    if not {"a", "b"} <= sides.keys():
        return []
    return [
        {"figure": figure.replace("_", " "), "a": _short(value), "b": _short(sides["b"].get(figure))}
        for figure, value in sides["a"].items()
    ]


def _short(value: Any) -> Any:
    """Return a digest with 12 digits; other values as they are."""
    return value[:12] if isinstance(value, str) and len(value) == 64 else value


def _drift_chart(terms: Sequence[Values]) -> Chart:
    shown = terms[:_CHART_TERMS]
    rows = [{**term, "direction": "heavier in B" if term["drift"] > 0 else "lighter in B"} for term in shown]
    present = [each for each in ("heavier in B", "lighter in B") if any(row["direction"] == each for row in rows)]
    color = series("direction", "Change", present)
    spec = bars("drift", "term", value_title="mean weight, B − A", rows=len(rows), color=color)
    about = f"The {len(rows)} query terms that drifted most: {', '.join(row['term'] for row in rows[:5])}."
    columns = {"term": "Term", "weight_a": "Weight in A", "weight_b": "Weight in B", "drift": "Drift"}
    return Chart("Drift of query terms", about, columns, rows, spec)
