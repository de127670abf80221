"""The tables of ``lsr-prod inspect-vocabulary``."""

from rich.console import Console
from rich.table import Table

from lsr_prod.vocabulary.inspect import Inspection

__all__ = ["print_inspection"]


def print_inspection(found: Inspection, title: str) -> None:
    """Print what was found on stdout."""
    console, norms = Console(), found.norms
    head = Table("rows", "mean norm", "max norm", "anisotropy", "tied", "bias", title=title, title_justify="left")
    head.add_row(
        f"{norms.rows:,}",
        f"{norms.mean_norm:.3f}",
        f"{norms.max_norm:.3f}",
        f"{norms.anisotropy:.3f}",
        "yes" if norms.tied else "no",
        "yes" if norms.has_bias else "no",
    )
    console.print(head)
    table = Table("", "model", "target", title="vocabulary", title_justify="left")
    table.add_row("terms", f"{found.terms:,}", "" if found.target_terms is None else f"{found.target_terms:,}")
    table.add_row("cased terms", f"{found.cased:,}", "")
    if found.overlap is not None:
        table.add_row("share of the target's terms that the model has", "", f"{found.overlap:.1%}")
    if found.fragmentation is not None:
        own, other = found.fragmentation
        table.add_row("tokens per word", f"{own:.3f}", "" if other is None else f"{other:.3f}")
    console.print(table)
    if found.neighbours:
        console.print(_neighbours(found))


def _neighbours(found: Inspection) -> Table:
    table = Table("term", "sub-tokens", "nearest", "of", title="what new rows are made of", title_justify="left")
    for entry in found.neighbours:
        nearest = ", ".join(f"{term} {weight:.3f}" for term, weight in entry.nearest)
        table.add_row(entry.term, " ".join(entry.pieces), "copied" if entry.shared else nearest, str(entry.support))
    return table
