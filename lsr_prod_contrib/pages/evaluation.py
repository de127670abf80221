"""The page of an evaluation: systems with intervals, comparisons with the baseline query by query, and costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.errors import ConfigError
from lsr_prod_contrib.pages.charts import bars, labeled_points, lines, pairs, ranges
from lsr_prod_contrib.pages.sections import Chart, Page, show_number

Values = Mapping[str, Any]

_SHOWN_SYSTEMS = 8  # with a chart of their own, the best first
_POINTS = 4_000  # of all charts with one point per query
_EXTREMES = 10  # wins, and losses, with their queries
_TEXT = 160  # characters of a query in a chart
_TEXT_IN_TABLE = 400
_LATENCIES = ("match_p50_ms", "match_p95_ms", "text_p50_ms", "text_p95_ms")
_COMPARED = ("difference", "low", "high", "wins", "losses", "ties", "p_t", "p_randomization", "p_adjusted")
_MATCHED = {
    "count": "number of shared terms",
    "ratio": "share of the query's terms",
    "weight": "share of the query's weight",
}


def evaluation_page(result: Values, *, measure: str | None = None, name: str = "evaluation") -> Page:
    """Return the page of ``Evaluation.result()``.

    Values per query are kept for one measure only, and for the queries with the largest differences if there are many,
    so that the page stays small.
    """
    if not result["systems"]:
        raise ConfigError("FILE", "the evaluation has no system", "give the result of a finished evaluation")
    measures = list(result["systems"][0]["measures"])
    measure = measure or next(iter(measures), "")
    if measure not in measures:
        raise ConfigError("--measure", f"{measure!r} was not measured", f"give one of {', '.join(measures)}")
    marks = {(one["system"], one["measure"]): one for one in result["comparisons"]}
    systems = sorted(result["systems"], key=lambda one: -one["measures"][measure])
    baseline = _baseline(result)
    others = [one for one in systems if one["name"] != baseline["name"]][:_SHOWN_SYSTEMS]
    compared = [_compared(one, baseline, result, measure, _POINTS // max(1, len(others))) for one in others]
    data = {
        **{key: result.get(key) for key in ("index", "version", "queries", "documents", "significance", "correction")},
        **{key: result[key] for key in ("l0_query", "l0_document", "flops")},
        "measures": measures,
        "measure": measure,
        "baseline": baseline["name"],
        "systems": [_system(one, marks) for one in systems],
        "comparisons": [
            {**{key: one[key] for key in ("measure", "system", *_COMPARED)}, "mark": _mark(one)}
            for one in _sorted(result["comparisons"], measures)
        ],
        "queries_of": [{key: one[key] for key in ("system", "wins", "losses", "chart")} for one in compared],
        "efficiency": {key: value for key, value in result["efficiency"].items() if key != "by_query"},
    }
    charts = {
        "measure": _interval_chart(systems, measure),
        **_latency_charts(systems, measure),
        **{one["chart"]: _query_chart(one, baseline["name"], measure) for one in compared},
        **_cost_charts(result, compared, measure),
        **_efficiency_charts(result["efficiency"]),
    }
    return Page(name, f"Evaluation of {result['index']}", "evaluation.html.j2", data, charts)


def _baseline(result: Values) -> Values:
    """Return the system that the others are compared with."""
    names = [one["baseline"] for one in result["comparisons"]] or [result.get("baseline")]
    return next((one for one in result["systems"] if one["name"] == names[0]), result["systems"][0])


def _sorted(comparisons: Sequence[Values], measures: Sequence[str]) -> list[Values]:
    """Return comparisons by measure, and by falling difference."""
    return sorted(comparisons, key=lambda one: (measures.index(one["measure"]), -one["difference"]))


def _system(system: Values, marks: Mapping[tuple[str, str], Values]) -> dict[str, Any]:
    """Return a system without its values per query."""
    measures = {
        measure: {
            "value": value,
            "interval": system.get("intervals", {}).get(measure),
            "mark": _mark(marks.get((system["name"], measure))),
        }
        for measure, value in system["measures"].items()
    }
    return {**{key: system[key] for key in ("name", "kind", "matched", *_LATENCIES)}, "measures": measures}


def _mark(comparison: Values | None) -> str:
    """Return whether a system is significantly better or worse than the baseline; empty: neither."""
    if comparison is None or not comparison["significant"]:
        return ""
    return "better" if comparison["difference"] > 0 else "worse"


def _compared(system: Values, baseline: Values, result: Values, measure: str, points: int) -> dict[str, Any]:
    """Return a system and the baseline query by query: the rows of the chart, and the largest wins and losses."""
    values, base = system["by_query"][measure], baseline["by_query"][measure]
    queries = zip(result["query_ids"], result["query_texts"], base, values, strict=True)
    rows = [
        {"query": query_id, "text": text, "baseline": before, "system": after, "difference": round(after - before, 6)}
        for query_id, text, before, after in queries
    ]
    rows.sort(key=lambda row: -abs(row["difference"]))
    shown = [{**row, "text": _cut(row["text"], _TEXT)} for row in rows[:points]]
    changed = [{**row, "text": _cut(row["text"], _TEXT_IN_TABLE)} for row in rows if row["difference"]]
    return {
        "system": system["name"],
        "chart": f"queries-{result['systems'].index(system)}",
        "rows": shown,
        "queries": len(rows),
        "wins": [row for row in changed if row["difference"] > 0][:_EXTREMES],
        "losses": [row for row in changed if row["difference"] < 0][:_EXTREMES],
    }


def _interval_chart(systems: Sequence[Values], measure: str) -> Chart:
    rows = []
    for system in systems:
        low, high = system.get("intervals", {}).get(measure) or (None, None)
        rows.append({"system": system["name"], "value": system["measures"][measure], "low": low, "high": high})
    best = rows[0]
    return Chart(
        f"{measure} with intervals",
        f"One row per system, the best first: the mean over the queries, and the bootstrap interval of the mean. "
        f"{best['system']} has {show_number(best['value'], 3)}.",
        {"system": "System", "value": measure, "low": "Lower end", "high": "Upper end"},
        rows,
        ranges("value", "low", "high", "system", value_title=measure, rows=len(rows)),
    )


def _latency_charts(systems: Sequence[Values], measure: str) -> dict[str, Chart]:
    """Quality against latency and against matched documents; systems without these figures are left out."""
    costs = {"text_p50_ms": "milliseconds from text to hits, median", "matched": "matched documents per query"}
    charts = {}
    for cost, title in costs.items():
        rows = [
            {"system": one["name"], "cost": one[cost], "value": one["measures"][measure]}
            for one in systems
            if one[cost]
        ]
        if len(rows) > 1:
            charts[f"cost-{cost.replace('_', '-')}"] = Chart(
                f"{measure} against {title}",
                "One point per system; better systems are higher, cheaper ones further left.",
                {"system": "System", "cost": title, "value": measure},
                rows,
                labeled_points("cost", "value", "system", x_title=title, y_title=measure),
            )
    return charts


def _query_chart(compared: Values, baseline: str, measure: str) -> Chart:
    rows, all_of = compared["rows"], compared["queries"]
    shown = "One point per query"
    if len(rows) < all_of:
        shown += f", of the {len(rows):,} of {all_of:,} queries with the largest differences"
    name = compared["system"]
    return Chart(
        f"{measure} per query: {name} against {baseline}",
        f"{shown}. Above the diagonal {name} is better.",
        {"query": "Query", "text": "Text", "baseline": baseline, "system": name, "difference": "Difference"},
        rows,
        pairs("baseline", "system", x_title=f"{measure} of {baseline}", y_title=f"{measure} of {name}"),
    )


def _cost_charts(result: Values, compared: Sequence[Values], measure: str) -> dict[str, Chart]:
    """Gain of the best system against the cost of every query, if the result has it."""
    costs = result["efficiency"].get("by_query", {}).get("multiplications")
    if not costs or not compared:
        return {}
    by_id = dict(zip(result["query_ids"], costs, strict=True))
    best = compared[0]
    rows = [
        {"query": row["query"], "text": row["text"], "cost": by_id[row["query"]], "gain": row["difference"]}
        for row in best["rows"]
        if by_id[row["query"]]
    ]
    title = "postings of the query's terms"
    return {
        "gain": Chart(
            f"Gain in {measure} of {best['system']} against the cost of the query",
            f"One point per query: the difference from the baseline, and the number of {title}.",
            {"query": "Query", "text": "Text", "cost": title, "gain": "Difference"},
            rows,
            pairs("cost", "gain", x_title=title, y_title=f"difference in {measure}", diagonal=False, log_x=True),
        )
    }


def _efficiency_charts(efficiency: Values) -> dict[str, Chart]:
    sizes = [{"part": part, "bytes": size} for part, size in efficiency["bytes"].items() if size]
    sizes.sort(key=lambda row: -row["bytes"])
    postings = efficiency["postings"]
    curve = [{"rank": rank, "length": length} for rank, length in postings["curve"] if length]
    charts = {
        "bytes": Chart(
            "Bytes of the index by part",
            "One bar per part, the largest first.",
            {"part": "Part", "bytes": "Bytes"},
            sizes,
            bars("bytes", "part", value_title="bytes", rows=len(sizes), x_format="~s"),
        ),
        "postings": Chart(
            "Lengths of the postings lists",
            f"Lists by falling length, both axes logarithmic. The longest has {postings['max']:,} documents, the mean "
            f"of all terms is {show_number(postings['mean'])}.",
            {"rank": "Rank of the list", "length": "Documents"},
            curve,
            lines("rank", "length", x_title="rank of the list", y_title="documents", log_x=True, log_y=True),
        ),
    }
    for kind, title in _MATCHED.items():
        rows = [one for one in efficiency["matched"] if one["kind"] == kind]
        if rows:
            charts[f"matched-{kind}"] = Chart(
                f"Matched documents by {title}",
                "Mean number of documents per query that pass the threshold.",
                {"threshold": f"Smallest {title}", "documents": "Documents"},
                [{"threshold": one["threshold"], "documents": one["documents"]} for one in rows],
                lines("threshold", "documents", x_title=f"smallest {title}", y_title="documents"),
            )
    return charts


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
