"""Output of a job on stdout and stderr: the only functions of the jobs that do, with every character escaped.

Tables have their own module; the log has its own, too. Both escape with the same function.
"""

import sys
from collections.abc import Mapping
from typing import Any, TextIO

from lsr_prod.visible import json_line, visible

__all__ = ["complain", "encodable", "print_json", "print_result", "say"]


def say(text: str, *, lines: bool = False) -> None:
    """Print one line on stdout.

    Args:
        text: the line; line breaks in it are escaped.
        lines: print several lines, such as a manual, which has no text from data.
    """
    _write(sys.stdout, f"{visible(text, lines=lines)}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Print one line on stderr; line breaks in it are escaped."""
    _write(sys.stderr, f"{visible(text)}\n")
    sys.stderr.flush()


def print_json(value: Any) -> None:
    """Print a value as one line of JSON on stdout."""
    _write(sys.stdout, f"{json_line(value)}\n")


def print_result(values: Mapping[str, Any]) -> None:
    """Print the line for machines, ``RESULT {json}``, on stdout."""
    _write(sys.stdout, f"RESULT {json_line(values)}\n")
    sys.stdout.flush()


def encodable(text: str, stream: TextIO) -> str:
    """Return a text with escapes for the characters that a stream cannot encode, as in a terminal without UTF-8."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _write(stream: TextIO, text: str) -> None:
    stream.write(encodable(text, stream))
