"""Write a report page: one HTML file without network access, and the same content as JSON.

The HTML file contains its styles, scripts and data. A content security policy allows exactly these styles and scripts
by their sha256, so that text from data could not run as a script even if it were not escaped. Vega-Lite therefore
evaluates its expressions with an interpreter (``ast`` in ``static/charts.js``) instead of ``eval``.
"""

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lsr_prod import __version__
from lsr_prod.storage.folders import absolute, store_file
from lsr_prod_contrib.pages.charts import CONFIG
from lsr_prod_contrib.pages.sections import Chart, Page, level, show_bytes, show_number, show_percent

_FORMAT = 1  # of the JSON file
_SHOWN_ROWS = 200  # of the table below a chart


def write_page(destination: str | Path, page: Page, options: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Write ``<name>.html`` and ``<name>.json``; files of these names are replaced.

    Args:
        destination: folder or URI; a folder is created if it is absent.
        page: the page.
        options: options of the object store.

    Returns:
        Absolute path or URI of the HTML file and of the JSON file.

    Raises:
        StorageError: the store or the disk fails.
    """
    html, data = render_page(page), page_json(page)
    place = f"{absolute(str(destination)).rstrip('/')}/{page.name}"
    store_file(f"{place}.json", data.encode(), options)
    store_file(f"{place}.html", html.encode(), options)
    return f"{place}.html", f"{place}.json"


def render_page(page: Page) -> str:
    """Return a page as HTML; the same page always gives the same text."""
    style = _static("page.css")
    scripts = []
    if page.charts:
        scripts = [_vega(), _static("charts.js")]
    if page.script is not None:
        scripts.append(_static(page.script))
    return (
        _templates()
        .get_template(page.template)
        .render(
            page=page,
            data=plain(page.data),
            embedded=Markup(embedded_json(_embedded(page))),  # noqa: S704 - escaped by embedded_json
            style=Markup(style),  # noqa: S704 - ours
            scripts=[Markup(script) for script in scripts],  # noqa: S704 - ours
            policy=_policy(style, scripts),
            shown_rows=_SHOWN_ROWS,
            version=__version__,
        )
    )


def page_json(page: Page) -> str:
    """Return the content of a page as JSON: ``{"format", "page", "title", "data", "charts"}``."""
    return json.dumps(_content(page, specs=False), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def embedded_json(value: Any) -> str:
    """Return JSON that a ``<script>`` element of HTML can contain, whatever its strings are."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def plain(value: Any) -> Any:
    """Return a value as JSON has it: tuples as lists, NaN and infinities as None, lone surrogates replaced."""
    if isinstance(value, bool | int | None):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(plain(key)): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _embedded(page: Page) -> dict[str, Any]:
    """Return what the scripts of a page read: the charts, and the data if the page has a script."""
    content = _content(page, specs=True)
    return content if page.script is not None else {"charts": content["charts"]}


def _content(page: Page, *, specs: bool) -> dict[str, Any]:
    charts = {name: _chart(chart, specs=specs) for name, chart in page.charts.items()}
    content = {"format": _FORMAT, "page": page.name, "title": page.title, "data": page.data, "charts": charts}
    shown: dict[str, Any] = plain(content)
    return shown


def _chart(chart: Chart, *, specs: bool) -> dict[str, Any]:
    content = {"title": chart.title, "description": chart.description, "columns": dict(chart.columns)}
    rows = [dict(row) for row in chart.rows]
    return {**content, "rows": rows} | ({"spec": {**chart.spec, "config": CONFIG}} if specs else {})


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("lsr_prod_contrib.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters.update(number=show_number, bytes=show_bytes, percent=show_percent, level=level)
    return environment


@cache
def _static(name: str) -> str:
    return files("lsr_prod_contrib.pages").joinpath("static", name).read_text(encoding="utf-8")


@cache
def _vega() -> str:
    """Vega, Vega-Lite and vega-embed as one script; a function keeps their names out of the other scripts."""
    return f"(() => {{{vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;')}\n}})();"


def _policy(style: str, scripts: list[str]) -> str:
    """Return the content security policy of a page with this style and these scripts."""
    allowed = " ".join(_digest(script) for script in scripts) or "'none'"
    return f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; base-uri 'none'; form-action 'none'"


@cache
def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
