"""The commands ``evaluate``, ``sweep`` and ``tune``: measure systems, and choose settings by measuring them."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lsr_prod.config import Deployment
from lsr_prod.evaluation import evaluate_index
from lsr_prod.evaluation.evaluate import brief
from lsr_prod.evaluation.sweeps.job import run_sweep
from lsr_prod.evaluation.sweeps.report import COSTS
from lsr_prod.evaluation.tuning import tune_index
from lsr_prod.jobs.terminal.run import Job, scalars
from lsr_prod.jobs.terminal.tables import print_columns, print_table
from lsr_prod.storage.folders import open_text

if TYPE_CHECKING:
    from lsr_prod.operations.pages import Page

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
    print_columns(title, headings, rows)


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
        print_columns(f"compared with {comparisons[0]['baseline']}", headings, rows)


def _print_evaluation(summary: Mapping[str, Any]) -> None:
    print_systems(summary["systems"], summary["comparisons"])
    print_comparisons(summary["comparisons"])
    print_table("lsr-prod evaluate", {**scalars(summary), **_costs(summary["efficiency"])})


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


def evaluate_pages(_deployment: Deployment, summary: Mapping[str, Any]) -> list["Page"]:
    """Return the evaluation report; the summary has the values per query."""
    from lsr_prod.operations.pages.evaluation import evaluation_page

    return [evaluation_page(summary)]


@partial(Job, "evaluate", needs=("evaluate",), show=_print_evaluation, brief=brief, pages=evaluate_pages)
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


def _print_sweep(summary: Mapping[str, Any]) -> None:
    costs = [name for name in COSTS if name != summary["cost"]]
    headings = ["collection", "setting", summary["measure"], summary["cost"], *costs]
    rows = [
        [row["collection"], row["setting"], row["value"], row[summary["cost"]], *(row[cost] for cost in costs)]
        for row in summary["front"]
    ]
    print_columns(f"Pareto front of {summary['measure']} against {summary['cost']}", headings, rows)
    print_table("lsr-prod sweep", scalars(summary))


def _sweep_pages(deployment: Deployment, summary: Mapping[str, Any]) -> list["Page"]:
    from lsr_prod.operations.pages.sweep import sweep_page

    with open_text(summary["report"], deployment.storage.options) as file:
        return [sweep_page(json.load(file))]


@partial(Job, "sweep", needs=("sweep",), show=_print_sweep, pages=_sweep_pages)
def sweep(deployment: Deployment) -> Mapping[str, Any]:
    """Measure models, prunings, thresholds and hybrid weights on collections, and choose the cheapest good setting.

        lsr-prod sweep --config deployment.yaml [--sweep.within 0.02 --sweep.cost bytes]

    Reads the sections ``sweep``, ``ray`` and ``storage``. Every text is encoded once per model; a task per model,
    collection and ``dk`` measures its points with an index in memory. An interrupted sweep is resumed by the same command;
    changed lists of settings compute only what is new.

    Writes ``sweep.json`` (all points, Pareto fronts, the choice) and ``patch.yaml`` to ``sweep.output``. Apply the patch by
    giving both files to a job: ``--config deployment.yaml --config patch.yaml``.

    With ``report`` it also writes the page of the sweep.

    Prints the settings on the Pareto fronts, the choice, and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
    """
    return run_sweep(deployment)


def _print_tuning(summary: Mapping[str, Any]) -> None:
    rows = [[row["threshold"], row["hybrid_weight"], row["value"]] for row in summary["curve"]]
    print_columns("measured candidates", ["threshold", "words", summary["measure"]], rows)
    print_table("lsr-prod tune", scalars(summary))


@partial(Job, "tune", needs=("tune",), show=_print_tuning)
def tune(deployment: Deployment) -> Mapping[str, Any]:
    """Choose the hybrid weight and the overlap threshold of a published index on judged queries or clicks.

        lsr-prod tune --config deployment.yaml [--tune.thresholds 0 --tune.thresholds 0.4]

    Reads the sections ``tune`` and ``storage``. The index needs postings of words (``index.bm25: true``). Each candidate is
    measured with the searches of the product; the choice is validated on queries that it did not see, fold by fold.

    Writes ``tune.json`` and ``patch.yaml`` if ``tune.output`` names a folder. Apply the patch by giving both files to a
    job: ``--config deployment.yaml --config patch.yaml``.

    Prints the curve, the choice with its cross-validated value and interval, and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
    """
    return tune_index(deployment).result()
