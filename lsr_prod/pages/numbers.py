"""Numbers as a page shows them."""

import math
from typing import Any

_ABSENT = "–"
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


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
