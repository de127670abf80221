"""Pages that consist of sections: facts, charts, tables and lists of terms under a heading."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from lsr_prod.pages.charts import lines, series
from lsr_prod.pages.page import Chart, Page

T = TypeVar("T")

_POINTS = 300  # of a line


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
    """A section of a page.

    Attributes:
        id: its fragment in the URL, lower-case letters and hyphens.
        heading: plain text.
        text: paragraphs before everything else.
        facts: figures by name.
        charts: names of charts of the page.
        tables: tables below the charts.
        terms: lists of terms or other short texts, by caption.
    """

    id: str
    heading: str
    text: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    charts: Sequence[str] = ()
    tables: Sequence[Table] = ()
    terms: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in which every row has all columns of its table."""
        tables = [
            {**asdict(table), "rows": [{name: row.get(name) for name in table.columns} for row in table.rows]}
            for table in self.tables
        ]
        return {**asdict(self), "tables": tables}


def sections_page(
    name: str, title: str, sections: Sequence[Section], charts: Mapping[str, Chart], data: Mapping[str, Any]
) -> Page:
    """Return a page of sections."""
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
