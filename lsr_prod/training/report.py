"""The tables of a chain: one row a stage, and one row a model on the way back."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from lsr_prod.training.lineage import Ancestor

__all__ = ["print_lineage", "print_stages"]

_FIGURES = ("steps", "rows", "loss", "l0_query", "l0_document", "best", "seconds")


def print_stages(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the stages of ``run_chain`` on stdout; figures of a skipped one are those of the run that finished it."""
    table = Table(title="stages", title_justify="left")
    for heading in ("stage", "kind", "done"):
        table.add_column(heading)
    for heading in _FIGURES:
        table.add_column(heading, justify="right")
    table.add_column("model")
    for row in rows:
        figures = (_figure(row.get(name)) for name in _FIGURES)
        done = "before" if row["skipped"] else "now"
        table.add_row(str(row["number"]), row["kind"], done, *figures, row["model"][:12])
    Console(width=max(110, Console().width)).print(table)


def print_lineage(ancestors: Sequence[Ancestor]) -> None:
    """Print a model and what it was made from, itself first, on stdout."""
    table = Table(title="lineage", title_justify="left")
    for heading in ("model", "made by", "rows", "steps", "seed", "training set"):
        table.add_column(heading)
    for ancestor in ancestors:
        training = ancestor.training or {}
        settings = training.get("settings", {})
        table.add_row(
            ancestor.model,
            str(training.get("stage", "")),
            *(_figure(value) for value in (training.get("rows"), training.get("steps"), settings.get("seed"))),
            str(training.get("training_set", ""))[:12],
        )
    Console(width=max(130, Console().width)).print(table)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    return "" if value is None else f"{value:,}"
