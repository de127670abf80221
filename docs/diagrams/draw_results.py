"""Draw the picture of measured results as SVG: ``python docs/diagrams/draw_results.py``.

``systems.svg`` is drawn from a table of docs/training.md: a picture has no figure of its own. It has a white ground, so
that it can be read on light and on dark pages.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vl_convert

FOLDER = Path(__file__).parent
DOCS = FOLDER.parent
STYLE = {
    "background": "#ffffff",
    "padding": 12,
    "font": "Helvetica, Arial, sans-serif",
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 320,
        "gridColor": "#e6e8eb",
    },
    "title": {"anchor": "start", "fontSize": 14, "subtitleFontSize": 12, "subtitlePadding": 6, "offset": 10},
    "view": {"stroke": None},
}
NAMES = {
    "BM25 over the full text": "BM25 (words)",
    "two encoders, 500 steps": "two encoders, 500 steps",
    "inference-free queries, documents trained on the pairs": "inference-free queries",
    "the same, hybrid at the default weight (best of four weights)": "inference-free queries + words (hybrid)",
}
"""System of the table -> its name in the picture."""


def tables(page: Path) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield (section, rows by column) of every table of a page."""
    section, header = "", list[str]()
    rows: list[dict[str, str]] = []
    for line in [*page.read_text().splitlines(), ""]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not line.startswith("|"):
            if rows:
                yield section, rows
            header, rows = [], []
        elif not header:
            header = cells
        elif not set(line) <= set("|-"):
            rows.append(dict(zip(header, cells, strict=True)))


def systems() -> dict[str, Any]:
    """Return the bars of four systems on the collection of health answers."""
    (rows,) = [found for _, found in tables(DOCS / "training.md") if list(found[0]) == ["system", "nDCG@10"]]
    values = {row["system"]: float(row["nDCG@10"].split()[0]) for row in rows}
    data = [{"system": NAMES[name], "nDCG@10": values[name]} for name in NAMES]
    bar = {"y": {"field": "system", "type": "nominal", "sort": "x", "title": None}, "x": _number("nDCG@10", [0, 0.5])}
    return {
        "title": {
            "text": "Quality of one small model, alone and with words",
            "subtitle": "nDCG@10, 17,000 health answers, 103 judged questions (docs/training.md)",
        },
        "width": 420,
        "height": 150,
        "data": {"values": data},
        "encoding": bar,
        "layer": [
            {"mark": {"type": "bar", "color": "#3b6fb6"}},
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 12},
                "encoding": {"text": {"field": "nDCG@10", "format": ".3f"}},
            },
        ],
        "config": STYLE,
    }


def _number(field: str, domain: list[float]) -> dict[str, Any]:
    return {"field": field, "type": "quantitative", "scale": {"domain": domain}}


def pictures() -> dict[Path, str]:
    """Return the picture with its file."""
    return {FOLDER / "systems.svg": vl_convert.vegalite_to_svg(json.dumps(systems())) + "\n"}


if __name__ == "__main__":
    for file, svg in pictures().items():
        file.write_text(svg)
