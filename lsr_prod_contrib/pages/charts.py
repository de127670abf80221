"""Vega-Lite specs that pages share, as plain dictionaries.

Colors are variables of ``static/page.css``, so a chart follows the color scheme of the reader, and paper, without being
drawn again. The eight series colors can be told apart with the common color vision deficiencies (after Okabe and Ito,
darkened on light ground to a contrast of 3:1); a series also has a shape or a dash pattern where marks are thin.
"""

from collections.abc import Mapping, Sequence
from typing import Any

SERIES = tuple(f"var(--series-{number})" for number in range(1, 9))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 4], [1, 3], [12, 2, 2, 2])

_TEXT, _LINE = "var(--text)", "var(--line)"
_LOG = {"type": "log", "nice": False, "padding": 12}

CONFIG: Mapping[str, Any] = {
    "aria": False,  # the container has a text alternative, and the table below the chart all values
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "axis": {
        "labelColor": _TEXT,
        "titleColor": _TEXT,
        "gridColor": _LINE,
        "domainColor": _LINE,
        "tickColor": _LINE,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 150,
        "labelFlush": False,
    },
    "axisX": {"tickCount": {"expr": "ceil(width / 90)"}},
    "legend": {
        "labelColor": _TEXT,
        "titleColor": _TEXT,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "orient": "top",
        "columns": {"expr": "max(1, floor(width / 170))"},
        "labelLimit": 150,
    },
    "view": {"stroke": _LINE},
    "text": {"color": _TEXT},
    "rule": {"color": _TEXT},
    "bar": {"color": SERIES[0]},
    "point": {"color": SERIES[0], "filled": True, "size": 50, "opacity": 1},
    "line": {"color": SERIES[0], "strokeWidth": 2},
    "header": {"labelColor": _TEXT, "titleColor": _TEXT},
}
"""Configuration of every chart."""


def series(field: str, title: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the color encoding of a nominal field with these values; from the ninth value on, colors repeat."""
    colors = [SERIES[place % len(SERIES)] for place in range(len(names))]
    return {"field": field, "type": "nominal", "title": title, "scale": {"domain": list(names), "range": colors}}


def _styles(color: Mapping[str, Any], styles: Sequence[Any]) -> dict[str, Any]:
    """Return the encoding of the same series by shapes or dash patterns."""
    names = color["scale"]["domain"]
    return {**color, "scale": {"domain": names, "range": [styles[n % len(styles)] for n in range(len(names))]}}


def bars(
    value: str,
    label: str,
    *,
    value_title: str,
    rows: int,
    color: Mapping[str, Any] | None = None,
    x_format: str | None = None,
) -> dict[str, Any]:
    """Horizontal bars, one per label in the order of the rows; with ``color`` stacked."""
    encoding: dict[str, Any] = {
        "x": {"field": value, "type": "quantitative", "title": value_title},
        "y": {"field": label, "type": "nominal", "sort": None, "title": None},
    }
    if x_format is not None:
        encoding["x"]["axis"] = {"format": x_format}
    if color is not None:
        encoding["color"] = color
    return {"height": max(40, 22 * rows), "mark": {"type": "bar", "tooltip": {"content": "data"}}, "encoding": encoding}


def _axis(field: str, title: str, *, log: bool = False) -> dict[str, Any]:
    """Return the encoding of a quantity whose axis need not start at 0."""
    return {"field": field, "type": "quantitative", "title": title, "scale": _LOG if log else {"zero": False}}


def points(
    x: str, y: str, *, x_title: str, y_title: str, color: Mapping[str, Any] | None = None, log_x: bool = False
) -> dict[str, Any]:
    """Points of two quantities; with ``color``, series differ in shape, too. The axes need not start at 0."""
    encoding: dict[str, Any] = {"x": _axis(x, x_title, log=log_x), "y": _axis(y, y_title)}
    if color is not None:
        encoding["color"], encoding["shape"] = color, _styles(color, SHAPES)
    return {"height": 320, "mark": {"type": "point", "tooltip": {"content": "data"}}, "encoding": encoding}


def lines(
    x: str,
    y: str,
    *,
    x_title: str,
    y_title: str,
    color: Mapping[str, Any] | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> dict[str, Any]:
    """Lines over a quantity; with ``color`` one per series, which differ in dash pattern, too."""
    encoding: dict[str, Any] = {"x": _axis(x, x_title, log=log_x), "y": _axis(y, y_title, log=log_y)}
    if color is not None:
        color = {**color, "legend": {"symbolType": "stroke", "symbolSize": 400, "symbolStrokeWidth": 2}}
        encoding["color"], encoding["strokeDash"] = color, _styles(color, DASHES)
    mark = {"type": "line", "point": {"strokeWidth": 0}, "tooltip": {"content": "data"}}
    return {"height": 280, "mark": mark, "encoding": encoding}


def ranges(value: str, low: str, high: str, label: str, *, value_title: str, rows: int) -> dict[str, Any]:
    """A point with its interval per label, in the order of the rows."""
    return {
        "height": max(40, 26 * rows),
        "encoding": {"y": {"field": label, "type": "nominal", "sort": None, "title": None}},
        "layer": [
            {
                "transform": [{"filter": f"isValid(datum['{low}'])"}],
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": _axis(low, value_title), "x2": {"field": high}},
            },
            {
                "mark": {"type": "point", "size": 90, "tooltip": {"content": "data"}},
                "encoding": {"x": _axis(value, value_title)},
            },
        ],
    }


def labeled_points(x: str, y: str, label: str, *, x_title: str, y_title: str) -> dict[str, Any]:
    """A few points with their names next to them; the horizontal axis is logarithmic."""
    spec = points(x, y, x_title=x_title, y_title=y_title, log_x=True)
    text = {"type": "text", "dy": -10, "fontSize": 12}
    return {
        "height": spec["height"],
        "encoding": spec["encoding"],
        "layer": [
            {"mark": {**spec["mark"], "size": 90}},
            {"mark": text, "encoding": {"text": {"field": label, "type": "nominal"}}},
        ],
    }


def pairs(x: str, y: str, *, x_title: str, y_title: str, diagonal: bool = True, log_x: bool = False) -> dict[str, Any]:
    """Many points of two quantities, which may lie on each other; the line of equal values helps to compare them."""
    spec = points(x, y, x_title=x_title, y_title=y_title, log_x=log_x)
    mark = {**spec["mark"], "opacity": 0.5, "size": 60}
    rule: dict[str, Any] = {"mark": {"type": "rule", "strokeDash": [4, 4]}, "encoding": {"y": {"datum": 0}}}
    if diagonal:
        rule = {
            "data": {"values": [{x: 0, y: 0}, {x: 1, y: 1}]},
            "mark": {"type": "line", "color": _TEXT, "strokeDash": [4, 4], "strokeWidth": 1},
            "encoding": spec["encoding"],
        }
    return {"height": spec["height"], "layer": [rule, {"mark": mark, "encoding": spec["encoding"]}]}


def fronts(
    x: str, y: str, *, x_title: str, y_title: str, color: Mapping[str, Any], x_format: str | None = None
) -> dict[str, Any]:
    """Points of quality against cost, their Pareto front as a line, and a ring around the chosen point."""
    spec = points(x, y, x_title=x_title, y_title=y_title, color=color, log_x=True)
    if x_format is not None:
        spec["encoding"]["x"]["axis"] = {"format": x_format}
    plain = {axis: spec["encoding"][axis] for axis in ("x", "y")}
    return {
        "height": 360,
        "layer": [
            {
                "transform": [{"filter": "datum.front"}],
                "mark": {"type": "line", "color": _TEXT, "strokeWidth": 1.5, "interpolate": "step-after"},
                "encoding": plain,
            },
            {"mark": {**spec["mark"], "size": 45}, "encoding": spec["encoding"]},
            {
                "transform": [{"filter": "datum.chosen"}],
                "mark": {"type": "point", "filled": False, "color": _TEXT, "size": 350, "strokeWidth": 2},
                "encoding": plain,
            },
        ],
    }
