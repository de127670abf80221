"""Pages that consist of sections: facts, charts, tables and lists of terms under a heading."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from lsr_prod_contrib.pages.charts import lines, series

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
T = TypeVar("T")
_POINTS = 300  # of a line
_ABSENT = "–"
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart and the table with the same rows, which is its text alternative.

    Attributes:
        title: heading of the chart, plain text.
        description: one or two sentences: what is drawn, and what it shows. Screen readers read it instead of the
            picture.
        columns: field of a row -> heading in the table, in order; other fields are drawn only.
        rows: the data, the same for all layers of the spec.
        spec: Vega-Lite spec without ``data``, ``config`` and ``width``; see ``charts``.
    """

    title: str
    description: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """A report page before it is rendered.

    Attributes:
        name: name of the files without suffix: lower-case letters, digits and hyphens.
        title: title of the page, plain text.
        template: file in ``pages/templates``.
        data: plain JSON values; the template reads them as ``data``, and they are part of the JSON file.
        charts: chart by name; a template places it with the macro ``chart``.
        script: file in ``pages/static`` with the script of the page, which finds ``data`` in the JSON element
            ``content``; None: it has none, and the HTML file has the data only as the template shows them.

    Raises:
        ValueError: ``name`` is not possible.
    """

    name: str
    title: str
    template: str
    data: Mapping[str, Any]
    charts: Mapping[str, Chart] = field(default_factory=dict)
    script: str | None = None

    def __post_init__(self) -> None:
        """Validate the name, which becomes the name of files."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"page name {self.name!r} is not possible; give lower-case letters, digits and hyphens")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a section.

    Attributes:
        caption: what its rows are, plain text.
        columns: field of a row -> heading, in order.
        rows: the rows; a field may be absent.
    """

    caption: str
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page."""

    id: str  # its fragment in the URL, lower-case letters and hyphens
    heading: str  # plain text
    text: Sequence[str] = ()  # paragraphs before everything else
    facts: Mapping[str, Any] = field(default_factory=dict)  # figures by name
    charts: Mapping[str, Chart] = field(default_factory=dict)  # charts by their name on the page
    tables: Sequence[Table] = ()  # tables below the charts
    terms: Mapping[str, Sequence[str]] = field(default_factory=dict)  # lists of terms or other short texts, by caption

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in which every row has all columns of its table."""
        tables = [
            {**asdict(table), "rows": [{name: row.get(name) for name in table.columns} for row in table.rows]}
            for table in self.tables
        ]
        return {**asdict(replace(self, charts={})), "charts": list(self.charts), "tables": tables}


def sections_page(name: str, title: str, sections: Sequence[Section], data: Mapping[str, Any]) -> Page:
    """Return a page of sections."""
    charts = {name: chart for section in sections for name, chart in section.charts.items()}
    shown = {**data, "sections": [section.to_json() for section in sections]}
    return Page(name, title, "sections.html.j2", shown, charts)


def curves(
    title: str,
    description: str,
    rows: Sequence[Mapping[str, Any]],
    x: str,
    names: Mapping[str, str],
    *,
    x_title: str,
    y_title: str,
) -> Chart | None:
    """Return a chart with one line per field that any row has as a number; None: no row has one.

    The scale is logarithmic if all values are above 0 and span more than a factor of 100. Lines of more than 300 points
    are thinned to every n-th one and the last.
    """
    points: list[dict[str, Any]] = []
    for name, label in names.items():
        own = [{x: row[x], "line": label, "value": row[name]} for row in rows if _is_number(row.get(name))]
        points += thin(own, _POINTS)
    if not points:
        return None
    shown = [label for label in dict.fromkeys(names.values()) if any(point["line"] == label for point in points)]
    values = [point["value"] for point in points]
    spec = lines(
        x,
        "value",
        x_title=x_title,
        y_title=y_title,
        color=series("line", "", shown) if len(shown) > 1 else None,
        log_y=min(values) > 0 and max(values) > 100 * min(values),
    )
    spec["encoding"]["x"]["axis"] = {"tickMinStep": 1, "format": ",d"}
    if len(points) > 40 * len(shown):
        spec["mark"] = {**spec["mark"], "point": False}
    if len(shown) == 1:
        spec["height"] = 180
    return Chart(title, description, {x: x_title, "line": "line", "value": y_title}, points, spec)


def drawn(charts: Mapping[str, Chart | None]) -> dict[str, Chart]:
    """Return the charts that have something to draw."""
    return {name: chart for name, chart in charts.items() if chart is not None}


def moment(time: str) -> str:
    """Return a time in ISO 8601 as ``2026-11-24 19:12:32``, without its zone."""
    return time[:19].replace("T", " ")


def thin(rows: Sequence[T], most: int) -> list[T]:
    """Return every n-th row and the last one, so that there are not more than ``most`` + 1."""
    step = max(1, -(-len(rows) // most))
    kept = list(rows[::step])
    return kept if not rows or (len(rows) - 1) % step == 0 else [*kept, rows[-1]]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def show_number(value: Any, digits: int = 4) -> str:
    """Return an integer with separators, another number with ``digits`` significant digits, other values as text."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return _ABSENT
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 10**digits:
        return f"{round(value):,}"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    if places > digits + 3:
        return f"{value:.{digits - 1}e}"
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def show_bytes(value: int | None) -> str:
    """Return a number of bytes in decimal units, such as ``12.3 MB``."""
    if value is None:
        return _ABSENT
    size, unit = float(value), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{show_number(size, 3)} {_UNITS[unit]}"


def level(value: float, largest: float) -> int:
    """Return the shade of a positive value in a table, 1 to 5."""
    return min(5, 1 + int(5 * value / largest)) if value > 0 and largest > 0 else 1


def show_percent(value: float | None) -> str:
    """Return a share as a percentage."""
    return _ABSENT if value is None or not math.isfinite(value) else f"{show_number(100 * value, 3)} %"
