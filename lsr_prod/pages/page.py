"""Report pages: their texts, tables and charts as plain values."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


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
