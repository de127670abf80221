"""The page of a training run: loss, sparsity and validation, stage by stage."""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod_contrib.pages.sections import Chart, Page, Section, Table, curves, drawn, sections_page

_STAGE_COLUMNS = {
    "number": "stage", "kind": "kind", "steps": "steps", "rows": "rows", "loss": "last loss", "l0_query": "L0 queries",
    "l0_document": "L0 documents", "start": "measure before", "best": "best", "best_step": "at step",
    "seconds": "seconds", "model": "model",
}  # fmt: skip
_SPARSITY = {"l0_query": "queries", "l0_document": "documents"}
_VALIDATION = "validation/"
_SPARSE = ("l0_query", "l0_document", "flops")  # of a validation


def training_page(data: Mapping[str, Any]) -> Page:
    """Return the page of ``runs.training.describe_training``."""
    rows = [_row(number, stage) for number, stage in enumerate(data["stages"])]
    last = rows[-1] if rows else {}
    facts = {
        "stages": len(rows),
        "steps": sum(row.get("steps") or 0 for row in rows),
        "hours": round(sum(row.get("seconds") or 0 for row in rows) / 3600, 2),
        "last loss": last.get("loss"),
        "L0 of documents": last.get("l0_document"),
        "L0 of queries": last.get("l0_query"),
        "best measure": last.get("best"),
    }
    text = [f"Work store: {data['work']}."]
    if data["model"]:
        text.append(f"Model: {data['model']}.")
    sections = [Section("summary", "Summary", text, facts, tables=[Table("Stages of the chain", _STAGE_COLUMNS, rows)])]
    sections += [_stage(number, stage) for number, stage in enumerate(data["stages"])]
    stages = [{name: value for name, value in stage.items() if name != "reports"} for stage in data["stages"]]
    return sections_page("train", "Training run", sections, {**data, "stages": stages})


def _row(number: int, stage: Mapping[str, Any]) -> dict[str, Any]:
    reports = stage["reports"]
    unfinished = {"kind": "not finished", "steps": reports[-1]["step"] if reports else None}
    figures = stage["figures"] if stage["kind"] else unfinished
    return {"number": str(number), "kind": stage["kind"], **figures, "model": (stage["model"] or "")[:12]}


def _stage(number: int, stage: Mapping[str, Any]) -> Section:
    heading = f"Stage {number}: {stage['kind'] or 'not finished'}"
    reports = [{**report["values"], "step": report["step"]} for report in stage["reports"]]
    if not reports:
        return Section(f"stage-{number}", heading, ["This stage has no reports: it trains nothing step by step."])

    def draw(title: str, text: str, fields: Mapping[str, str], unit: str) -> Chart | None:
        return curves(title, text, reports, "step", fields, x_title="step", y_title=unit)

    loss = "Loss of the step at each report, in all and by part. It should fall well below chance (equal vectors)."
    terms = "Mean number of active terms per text (L0) in the batch. The regularizers should lower it."
    validated = "Active terms and FLOPS on the validation set."
    dead = "Output terms that no document of the last 500 steps activated."
    rate = "Documents per second of all workers between two reports."
    found = {
        "loss": draw("Loss", loss, _losses(reports), "loss"),
        "sparsity": draw("Active terms", terms, _SPARSITY, "terms per text"),
        "validation": _validation(reports, "Validation", "Measures on the validation set.", sparse=False),
        "validated": _validation(reports, "Sparsity in validation", validated, sparse=True),
        "dead": draw("Dead terms", dead, {"dead_terms": "dead terms"}, "terms"),
        "gradient": draw(
            "Gradient norm", "Norm of the gradient before clipping.", {"grad_norm": "gradient norm"}, "norm"
        ),
        "learning-rate": draw(
            "Learning rate", "Learning rate of the step.", {"learning_rate": "learning rate"}, "learning rate"
        ),
        "rate": draw("Throughput", rate, {"docs_per_s": "documents"}, "documents per second"),
    }
    charts = drawn({f"stage-{number}-{name}": chart for name, chart in found.items()})
    return Section(f"stage-{number}", heading, charts=charts)


def _losses(reports: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the fields of losses, the whole loss first; weights of regularizers are no losses."""
    names = {name for report in reports for name in report if name.startswith("loss_")}
    parts = sorted(name for name in names if not name.endswith("_weight"))
    return {"loss": "total", **{name: name.removeprefix("loss_") for name in parts}, "chance": "chance"}


def _validation(reports: Sequence[Mapping[str, Any]], title: str, description: str, *, sparse: bool) -> Chart | None:
    found = sorted({name for report in reports for name in report if name.startswith(_VALIDATION)})
    names = {name: name.removeprefix(_VALIDATION) for name in found}
    chosen = {name: label for name, label in names.items() if (label in _SPARSE) == sparse}
    return curves(title, description, reports, "step", chosen, x_title="step", y_title="value")
