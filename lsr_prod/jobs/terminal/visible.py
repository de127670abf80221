"""Text from data, made safe for a terminal."""

import json
from typing import Any

__all__ = ["json_line", "visible"]


def visible(text: str) -> str:
    r"""Return a text with escapes such as ``\x1b`` for every character that a terminal could act on.

    Control characters, line breaks, and invisible characters such as those that change the direction of writing are
    replaced; so is the backslash, so that an escape can be told from text that looks like one.
    """
    return "".join(one if one.isprintable() and one != "\\" else _escape(one) for one in text)


def json_line(value: Any) -> str:
    """Return JSON in ASCII on one line, without control characters."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def _escape(one: str) -> str:
    return one.encode("unicode_escape").decode()
