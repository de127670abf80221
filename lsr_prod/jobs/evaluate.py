"""The command ``evaluate``, which measures systems."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.evaluation import evaluate_index
from lsr_prod.evaluation.evaluate import brief
from lsr_prod.jobs.terminal import shell, tables

_LATENCIES = ("match_p50_ms", "match_p95_ms", "text_p50_ms", "text_p95_ms")


def print_systems(systems: Sequence[Mapping[str, Any]], comparisons: Sequence[Mapping[str, Any]] = ()) -> None:
    """Print measures, matched documents and latencies, one row per system of ``Evaluation.result``."""
    measures = list(systems[0]["measures"]) if systems else []
    marks = {(one["system"], one["measure"]): _mark(one) for one in comparisons}
    headings = ["system", *measures, "matched per query", *(name.replace("_", " ") for name in _LATENCIES)]
    rows = [
        [
            system["name"],
            *(_measure(system, measure, marks.get((system["name"], measure), "")) for measure in measures),
            None if system["matched"] is None else round(system["matched"]),
            *(None if system[name] is None else float(system[name]) for name in _LATENCIES),
        ]
        for system in systems
    ]
    title = "quality and latency"
    if comparisons:
        title += f"; ▲ ▼ significantly better or worse than {comparisons[0]['baseline']}"
    tables.print_columns(title, headings, rows)


def print_comparisons(comparisons: Sequence[Mapping[str, Any]]) -> None:
    """Print the differences from the baseline with intervals and p values, one row per measure and system."""
    rows = [
        [
            one["measure"],
            one["system"],
            f"{one['difference']:+.3f}",
            f"{one['low']:+.3f} to {one['high']:+.3f}",
            f"{one['wins']} / {one['ties']} / {one['losses']}",
            *(float(one[name]) for name in ("p_t", "p_randomization", "p_adjusted")),
            _mark(one),
        ]
        for one in comparisons
    ]
    if rows:
        headings = ["measure", "system", "difference", "interval", "wins / ties / losses"]
        headings += ["p of t test", "p of randomization", "corrected p", ""]
        tables.print_columns(f"compared with {comparisons[0]['baseline']}", headings, rows)


def _print_evaluation(summary: Mapping[str, Any]) -> None:
    print_systems(summary["systems"], summary["comparisons"])
    print_comparisons(summary["comparisons"])
    tables.print_table("lsr-prod evaluate", {**shell.scalars(summary), **_costs(summary["efficiency"])})


def _costs(efficiency: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of the cost as rows of a table."""
    postings = efficiency["postings"]
    rows = {f"bytes of {part}": size for part, size in efficiency["bytes"].items()}
    rows |= {f"l0 {name}, p50 / p95": _percentiles(efficiency[f"l0_{name}"]) for name in ("query", "document")}
    spread = f"mean {postings['mean']:,.1f}, std {postings['std']:,.1f}, max {postings['max']:,}"
    rows["lengths of postings lists"] = f"{spread}, empty {postings['empty']:,}"
    for one in efficiency["matched"]:
        rows[f"documents with {one['kind']} ≥ {one['threshold']:g}"] = float(one["documents"])
    rows["postings read per query"] = float(efficiency["postings_read"])
    return rows


def _percentiles(counts: Mapping[str, float]) -> str:
    return f"{counts['p50']:g} / {counts['p95']:g}"


def _measure(system: Mapping[str, Any], measure: str, mark: str) -> Any:
    """Return a measure alone, or with half of its interval and the mark of its comparison."""
    value = float(system["measures"][measure])
    interval = system.get("intervals", {}).get(measure)
    if interval is None:
        return value
    return f"{value:.3f} ±{(interval[1] - interval[0]) / 2:.3f} {mark}".rstrip()


def _mark(comparison: Mapping[str, Any]) -> str:
    if not comparison["significant"]:
        return ""
    return "▲" if comparison["difference"] > 0 else "▼"


@partial(shell.Job, "evaluate", needs=("evaluate",), show=_print_evaluation, brief=brief, pages=True)
def evaluate(deployment: Deployment) -> Mapping[str, Any]:
    """Measure a published index: quality, significance, matched documents, cost and latency of any number of systems.

        lsr-prod evaluate --config deployment.yaml [--evaluate.thresholds 0 --evaluate.thresholds 0.4]

    Reads the section ``evaluate``. Without ``evaluate.systems`` the systems are BM25, every overlap threshold, and the
    hybrid if the index was built with ``index.bm25``. Writes TREC run files if ``evaluate.runs`` names a folder
    (JSON lines where an id has white space), and ``evaluation.json`` with all values per query if ``evaluate.output`` does.

    Prints a table with one row per system, the comparisons with the baseline, a table of sparsity and cost, and one line
    ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
    """
    return evaluate_index(deployment).result()
