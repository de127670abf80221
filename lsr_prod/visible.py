"""Text from data, made safe for a terminal: the one place that says which characters may reach it.

Everything that a job prints, and every value in a message of the log, goes through ``visible``.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable
from typing import Any

_JOINERS = "\u200c\u200d"  # non-joiner and joiner: letters of Persian and Indic words, parts of emoji
_FIRST_JOINED = "\u0590"  # scripts before it are never joined
# Arabic, Syriac and Kaithi signs of the category "format" that are drawn.
_DRAWN = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")  # of other categories, but never drawn
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_PLAIN = re.compile(r"[ -~]*")


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return a text with escapes such as ``\x1b`` for every character that a terminal could act on or would hide.

    These are control characters (C0, DEL, C1), line and paragraph separators, lone surrogates, and characters that are
    not drawn, among them those that change the direction of writing. Joiners stay where letters or emoji are joined.
    """
    if _PLAIN.fullmatch(text):
        return text
    before, shown = "", []
    for one in text:
        shown.append(one if _is_shown(one, before) or (lines and one == "\n") else _escape(one))
        before = one
    return "".join(shown)


def json_line(value: Any, *, default: Callable[[Any], Any] | None = None) -> str:
    """Return JSON in ASCII on one line, without control characters."""
    return json.dumps(_finite(value), allow_nan=False, default=default).replace("\x7f", "\\u007f")


def _is_shown(one: str, before: str) -> bool:
    if one in _JOINERS:
        return before >= _FIRST_JOINED and unicodedata.category(before)[0] in "LMS"
    if one in _FILLERS:
        return False
    return unicodedata.category(one) not in _HIDDEN or one in _DRAWN


def _escape(one: str) -> str:
    return one.encode("unicode_escape").decode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
