"""Tables that jobs print on stdout.

A table is widened rather than cut: text breaks between words only, so a key, a path or a number stays whole. Digests
are shortened to 12 hex digits; the line ``RESULT {json}`` has them in full.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lsr_prod.logs import visible

_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
_SMALL = 0.001


def print_table(title: str, rows: Mapping[str, Any]) -> None:
    """Print one row per key: the key and its value."""
    cells = [(_safe(name), _shown(value)) for name, value in rows.items()]
    keys = max((cell_len(name) for name, _ in cells), default=0)
    left = Console().width - keys - 7  # three borders and the padding of two columns
    values = max((max(_longest_word(value), min(cell_len(value), left)) for _, value in cells), default=0)
    table = Table(title=_title(title), show_header=False, title_justify="left")
    table.add_column(width=keys)
    table.add_column(width=values)
    for name, value in cells:
        table.add_row(Text(name), Text(value))
    _print(table)


def print_columns(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]], *, whole_digests: bool = False
) -> None:
    """Print a table with headings; columns of numbers are aligned to the right."""
    cells = [[_safe(v) if whole_digests and isinstance(v, str) else _shown(v) for v in row] for row in rows]
    headings = [_safe(heading) for heading in headings]
    content = [max((cell_len(row[number]) for row in cells), default=0) for number in range(len(headings))]
    widths = [max(width, cell_len(heading)) for width, heading in zip(content, headings, strict=True)]
    if sum(widths) + 3 * len(widths) + 1 > Console().width:  # headings of several lines make the table narrower
        widths = [max(width, _longest_word(heading)) for width, heading in zip(content, headings, strict=True)]
    table = Table(title=_title(title), title_justify="left")
    for number, heading in enumerate(headings):
        numeric = any(isinstance(row[number], int | float) for row in rows)
        table.add_column(Text(heading), width=widths[number], justify="right" if numeric else "left")
    for row in cells:
        table.add_row(*map(Text, row))
    _print(table)


def _print(table: Table) -> None:
    console = Console()
    console.width = max(console.width, sum((column.width or 0) + 3 for column in table.columns) + 1)
    console.print(table)


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if 0 < abs(value) < _SMALL:
            return f"{value:.3g}"
        decimals = 3 if abs(value) < 10 else 1 if abs(value) < 1000 else 0
        return f"{value:,.{decimals}f}"
    return _safe(_DIGEST.sub(r"\1", str(value)))


def _safe(text: str) -> str:
    """Return a text on one line that a terminal can only draw, so that a cell cannot break its table."""
    encoding = sys.stdout.encoding or "utf-8"
    return visible(text).encode(encoding, "backslashreplace").decode(encoding)  # its width is that of what is drawn


def _title(text: str) -> Text:
    """Return a title as it is: Rich would read brackets in a string, such as those of a path, as styles."""
    return Text(_safe(text), style="table.title")
