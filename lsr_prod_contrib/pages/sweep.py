"""The page of a sweep: quality against cost per collection, Pareto fronts, and the chosen setting with its patch."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.errors import ConfigError
from lsr_prod_contrib.pages.charts import fronts, series
from lsr_prod_contrib.pages.sections import Chart, Page

Values = Mapping[str, Any]

_POINTS = 9_000  # of all charts
_COSTS = {
    "flops": "FLOPS",
    "match_p50_ms": "milliseconds of matching, median",
    "bytes": "bytes of the postings",
}
_SETTING = ("model", "qk", "dk", "threshold", "hybrid_weight")
_FIGURES = ("flops", "match_p50_ms", "bytes", "matched", "l0_query", "l0_document")


def sweep_page(result: Values, *, name: str = "sweep") -> Page:
    """Return the page of ``SweepReport.result()``; values per query are left out."""
    if not result["points"]:
        raise ConfigError("FILE", "the sweep has no point", "give the result of a finished sweep")
    measure, costs = result["measure"], result["costs"]
    points = [_point(point, place, result) for place, point in enumerate(result["points"])]
    collections = list(dict.fromkeys(point["collection"] for point in points))
    chosen = {place for place, point in enumerate(points) if point["chosen"]}
    known = {one["name"]: one for one in result.get("collections", [])}
    per_chart = _POINTS // (len(collections) * len(costs))
    charts, sections = {}, []
    for number, collection in enumerate(collections):
        names = []
        for cost in costs:
            names.append(f"front-{number}-{cost.replace('_', '-')}")
            charts[names[-1]] = _chart(points, result["fronts"][collection][cost], collection, measure, cost, per_chart)
        sections.append(
            {
                "name": collection,
                "charts": names,
                "points": sum(point["collection"] == collection for point in points),
                "queries": known.get(collection, {}).get("queries"),
                "documents": known.get(collection, {}).get("documents"),
                "fronts": {cost: [points[place] for place in result["fronts"][collection][cost]] for cost in costs},
            }
        )
    data = {
        "measure": measure,
        "costs": {cost: _COSTS.get(cost, cost) for cost in costs},
        "settings": len({tuple(point[field] for field in _SETTING) for point in points}),
        "collections": sections,
        "chosen": {key: value for key, value in result["chosen"].items() if key not in ("patch", "points")},
        "chosen_points": [points[place] for place in sorted(chosen)],
        "patch": result["chosen"]["patch"],
        "patch_yaml": _yaml(result["chosen"]["patch"]),
        "points": points,
    }
    title = f"Sweep of {len(points):,} points on {', '.join(collections)}"
    return Page(name, title, "sweep.html.j2", data, charts)


def _point(point: Values, place: int, result: Values) -> dict[str, Any]:
    """Return a point without its values per query; ``qk`` and ``dk`` 0 become ``all``."""
    chosen = result["chosen"]
    places = chosen.get("points", {}).values() or [chosen["point"]]
    return {
        "collection": point["collection"],
        **{field: point[field] for field in _SETTING},
        "qk": point["qk"] or "all",
        "dk": point["dk"] or "all",
        "value": point["measures"][result["measure"]],
        "measures": point["measures"],
        **{field: point[field] for field in _FIGURES},
        "chosen": place in places,
    }


def _chart(
    points: Sequence[Values], front: Sequence[int], collection: str, measure: str, cost: str, most: int
) -> Chart:
    """Quality against one cost on one collection; the front and the chosen point come first in the table."""
    fields = ("model", "qk", "dk", "threshold", "hybrid_weight", "value", cost)
    places = [place for place, point in enumerate(points) if point["collection"] == collection and point[cost] > 0]
    on_front = set(front)
    places.sort(key=lambda place: (place not in on_front, not points[place]["chosen"], -points[place]["value"]))
    shown = places[:most]
    rows = [
        {
            **{field: points[place][field] for field in fields},
            "front": place in on_front,
            "chosen": points[place]["chosen"],
        }
        for place in shown
    ]
    models = list(dict.fromkeys(point["model"] for point in points))
    title = _COSTS.get(cost, cost)
    number = f"{len(places):,} points"
    if len(shown) < len(places):
        number = f"The best {len(shown):,} of {number}"
    columns = {"model": "Model", "qk": "qk", "dk": "dk", "threshold": "Threshold", "hybrid_weight": "Weight of words"}
    return Chart(
        f"{measure} against {title} on {collection}",
        f"{number}, {len(front)} of them on the Pareto front (the line): no other setting is both better and cheaper. "
        "The ring is the chosen setting.",
        {**columns, "value": measure, cost: title, "front": "On the front"},
        rows,
        fronts(
            cost,
            "value",
            x_title=title,
            y_title=measure,
            x_format="~s" if cost == "bytes" else None,
            color=series("model", "Model", models),
        ),
    )


def _yaml(patch: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a patch as YAML; JSON values are YAML values."""
    lines = []
    for section, fields in patch.items():
        lines.append(f"{section}:" if fields else f"{section}: {{}}")
        lines += [f"  {field}: {json.dumps(value, ensure_ascii=False)}" for field, value in fields.items()]
    return "\n".join(lines)
