"""Casing matrices (papers/casing, figure 2) of the cased models, drawn next to the page."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.results.claims import Family
from benchmarks.results.runs import Workshop
from lsr_prod import SparseEncoder
from lsr_prod_contrib.vocabularies.casing_matrix import CasingMatrix, casing_matrix

ROWS = ("cased, untrained", "cased", "cased, lowercased texts", "cased, regularizer")


def casing_pictures(family: Family, workshop: Workshop, file: Path) -> str:
    """Draw the matrices of the first seed over the test queries; returns the picture in Markdown.

    Args:
        family: casing.
        workshop: with its models.
        file: SVG file in a folder beside the page.
    """
    queries = list(workshop.material.collections["tldr"].queries.values())
    found = {}
    for label in ROWS:
        found[label] = casing_matrix(SparseEncoder.load(workshop.model(family.rows[label], 0)), queries)
    file.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "casing", "svg.fonttype": "none"}):
        _drawn(found).savefig(file, metadata={"Date": None})
    shares = "; ".join(f"{label} {_cased_share(one):.1%}" for label, one in found.items())
    return (
        f"![Casing matrices]({file.parent.name}/{file.name})\n\nPairs of an input token and an output term that it "
        f"activates, test queries, first seed. Share of the pairs whose term is cased: {shares}."
    )


def _drawn(found: dict[str, CasingMatrix]) -> Figure:
    figure = Figure(figsize=(2.6 * len(found), 2.6), layout="constrained")
    for axes, (label, one) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        one.draw_on(axes)
        axes.set_title(label, fontsize=9)
    figure.supxlabel("output term", fontsize=9)
    figure.supylabel("input token", fontsize=9)
    return figure


def _cased_share(one: CasingMatrix) -> float:
    return float(one.counts[:, 1].sum() / one.counts.sum())
