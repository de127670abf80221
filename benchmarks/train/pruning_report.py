"""What the pruning experiment shows: the table, the picture, and who wins."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from benchmarks.train.paired import Comparison, compare
from lsr_prod.evaluation.validation import Collection
from lsr_prod.evaluation.vector_evaluation import LevelReport

Measured = Mapping[str, Sequence[Sequence[LevelReport]]]
"""Name of a model -> for each seed, a report for every level and threshold."""


@dataclass(frozen=True, slots=True)
class Row:
    """One model at one level and threshold: means over the seeds.

    Attributes:
        model: its name.
        qk: terms kept of a query; 0: all.
        dk: terms kept of a document; 0: all.
        threshold: share of the query's terms that a document has to hold.
        l0_query: terms of a query after pruning.
        l0_document: terms of a document after pruning.
        flops: papers/esplade-pretraining, eq. 1.
        rr10: MRR@10.
        rr10_spread: its standard deviation over the seeds; 0 for one seed.
        r10: R@10.
        r10_spread: its standard deviation over the seeds.
        matched: documents that share enough terms with a query.
    """

    model: str
    qk: int
    dk: int
    threshold: float
    l0_query: float
    l0_document: float
    flops: float
    rr10: float
    rr10_spread: float
    r10: float
    r10_spread: float
    matched: float


def rows(measured: Measured) -> list[Row]:
    """The table, levels outside, then thresholds, then models."""
    found = []
    for number in range(len(next(iter(measured.values()))[0])):
        for model, seeds in measured.items():
            reports = [reports[number] for reports in seeds]
            found.append(_row(model, reports))
    return found


def _row(model: str, reports: Sequence[LevelReport]) -> Row:
    def mean(name: str) -> float:
        return float(np.mean([getattr(report, name) for report in reports]))

    rr10, r10 = ([report.measures[name] for report in reports] for name in ("RR@10", "R@10"))
    return Row(
        model=model,
        qk=reports[0].qk,
        dk=reports[0].dk,
        threshold=reports[0].threshold,
        l0_query=mean("l0_query"),
        l0_document=mean("l0_document"),
        flops=mean("flops"),
        rr10=float(np.mean(rr10)),
        rr10_spread=_spread(rr10),
        r10=float(np.mean(r10)),
        r10_spread=_spread(r10),
        matched=mean("matched"),
    )


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def table(title: str, found: Sequence[Row]) -> str:
    """The rows as text."""
    head = (
        f"{'(qk, dk)':8} {'thr':>3}  {'model':29} {'L0_q':>5} {'L0_d':>5} {'FLOPS':>8}  {'MRR@10':14} {'R@10':14} "
        f"{'matched':>8}"
    )
    return "\n".join([title, head, *map(_line, found)])


def _line(row: Row) -> str:
    level = f"({row.qk}, {row.dk})"
    return (
        f"{level:8} {row.threshold:3.1f}  {row.model:29} {row.l0_query:5.1f} {row.l0_document:5.1f} "
        f"{row.flops:8.4f}  {row.rr10:.4f} ±{row.rr10_spread:.4f} "
        f"{row.r10:.4f} ±{row.r10_spread:.4f} {row.matched:8.1f}"
    )


def draw(collections: Mapping[str, Sequence[Row]], file: Path) -> None:
    """Figure 1 of papers/esplade-pretraining: MRR@10 over FLOPS, a line a model through its levels.

    Full lines and discs: threshold 0; the other thresholds have dashed lines and markers of their own.
    """
    figure = Figure(figsize=(7 * len(collections), 5), layout="tight")
    panels = figure.subplots(1, len(collections), squeeze=False)
    for panel, (title, found) in zip(panels[0], collections.items(), strict=True):
        for number, model in enumerate(dict.fromkeys(row.model for row in found)):
            for threshold, marker in zip(sorted({row.threshold for row in found}), "os^Dv", strict=False):
                line = [row for row in found if (row.model, row.threshold) == (model, threshold)]
                panel.errorbar(
                    [row.flops for row in line],
                    [row.rr10 for row in line],
                    yerr=[row.rr10_spread for row in line],
                    color=f"C{number}",
                    marker=marker,
                    linestyle="-" if threshold == 0 else ":",
                    alpha=1.0 if threshold == 0 else 0.5,
                    label=f"{model}, threshold {threshold:g}",
                )
        panel.set(title=title, xlabel="FLOPS (eq. 1)", ylabel="MRR@10", xscale="log")
    panels[0][-1].legend(fontsize=6, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(file, dpi=150)


def compared(
    measured: Measured, collection: Collection, ours: str, theirs: str, *, level: tuple[int, int], threshold: float
) -> dict[str, Comparison]:
    """A paired test of two models at one level, by measure; queries of one page are one group."""
    page = {qrel.query_id: qrel.doc_id for qrel in collection.qrels if qrel.relevance > 0}
    groups = [page[query_id] for query_id in collection.queries]

    def values(model: str, measure: str) -> list[npt.NDArray[np.float64]]:
        return [
            report.by_query[measure]
            for reports in measured[model]
            for report in reports
            if (report.qk, report.dk, report.threshold) == (*level, threshold)
        ]

    return {measure: compare(values(ours, measure), values(theirs, measure), groups) for measure in ("RR@10", "R@10")}


def sentence(ours: str, theirs: str, place: str, found: Mapping[str, Comparison]) -> str:
    """A comparison as text."""
    parts = [
        f"{measure} {one.difference:+.4f} [{one.low:+.4f}, {one.high:+.4f}], p = {one.p:.4f}, "
        f"better in {one.wins} of {one.seeds} seeds"
        for measure, one in found.items()
    ]
    return f"{ours} against {theirs} at {place}: " + "; ".join(parts)


def summary(name: str, found: Sequence[Row], tests: Mapping[str, Mapping[str, Comparison]]) -> dict[str, Any]:
    """Flat figures of a collection for ``RESULT``."""
    values: dict[str, Any] = {}
    for row in found:
        key = f"{name}/{row.model}/{row.qk},{row.dk}/{row.threshold:g}"
        values[key] = {
            field: round(value, 4)
            for field, value in asdict(row).items()
            if field in ("l0_query", "l0_document", "flops", "rr10", "r10")
        }
    for test, comparisons in tests.items():
        for measure, one in comparisons.items():
            values[f"{name}/{test}/{measure}"] = {field: round(value, 4) for field, value in asdict(one).items()}
    return values
