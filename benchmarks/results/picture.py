"""Casing matrices (papers/casing, figure 2) of the cased models, drawn next to the page."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.results.claims import Family
from benchmarks.results.runs import Workshop
from lsr_prod import SparseEncoder
from lsr_prod.vocabulary.casing_matrix import CLASSES, CasingMatrix, casing_matrix

ROWS = ("cased, untrained", "cased", "cased, lowercased texts", "cased, regularizer")
INPUTS, OUTPUTS = CLASSES[:2], CLASSES[:2]


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
        counts = one.counts[:, : len(OUTPUTS)]
        axes.imshow(np.log10(counts + 1), cmap="Blues", vmin=0)
        axes.set_xticks(range(len(OUTPUTS)), OUTPUTS)
        axes.set_yticks(range(len(INPUTS)), INPUTS)
        axes.set_title(label, fontsize=9)
        darkest = np.log10(counts.max() + 1)
        for (row, column), count in np.ndenumerate(counts):
            color = "white" if np.log10(count + 1) > 0.6 * darkest else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=color)
    figure.supxlabel("output term", fontsize=9)
    figure.supylabel("input token", fontsize=9)
    return figure


def _cased_share(one: CasingMatrix) -> float:
    return float(one.counts[:, 1].sum() / one.counts.sum())
