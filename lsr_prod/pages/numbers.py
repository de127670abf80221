"""Numbers as a page shows them."""

import math
from typing import Any

__all__ = ["show_bytes", "show_number", "show_percent"]

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
    return f"{value:.{digits - 1}e}" if places > digits + 3 else f"{value:.{places}f}"


def show_bytes(value: int | None) -> str:
    """Return a number of bytes in decimal units, such as ``12.3 MB``."""
    if value is None:
        return _ABSENT
    size, unit = float(value), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{show_number(size, 3)} {_UNITS[unit]}"


def show_percent(value: float | None) -> str:
    """Return a share as a percentage."""
    return _ABSENT if value is None or not math.isfinite(value) else f"{100 * value:.1f} %"
