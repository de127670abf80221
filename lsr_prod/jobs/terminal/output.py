"""Output of a job on stdout, and its log on stderr: the only functions of the jobs that print, but for tables.

Every character is escaped, also in tables. ``protect_output`` makes sure that no output, also of libraries, fails the
command that it describes, ``accept_utf8`` that input is understood.
"""

import codecs
import io
import logging
import os
import select
import sys
from collections.abc import Mapping
from typing import Any

from lsr_prod.logs import json_line, visible


class _Descriptor(io.FileIO):
    """Descriptor of an output stream that no write fails: after the first error, everything is dropped."""

    error: OSError | None = None  # the first error

    def write(self, data: Any) -> int:
        while self.error is None:
            try:
                written: int | None = super().write(data)
            except OSError as error:
                self.error = error
            else:
                if written is not None:
                    return written
                select.select([], [self], [])  # another process has made the pipe non-blocking
        return memoryview(data).nbytes


def protect_output() -> None:
    """Let no write to stdout or stderr fail, whoever writes: characters without an encoding are escaped, and what a
    closed pipe or a full disk refuses is dropped.

    Streams that the caller of a command has replaced stay as they are.
    """
    for name, original in (("stdout", sys.__stdout__), ("stderr", sys.__stderr__)):
        stream = getattr(sys, name)
        if stream is not original:
            continue
        if stream is None:  # the descriptor was closed before the start
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
            continue
        stream.flush()
        protected = io.TextIOWrapper(
            io.BufferedWriter(_Descriptor(stream.fileno(), "w", closefd=False)),
            encoding=stream.encoding,
            errors="backslashreplace",
            line_buffering=stream.line_buffering or stream.write_through,
        )
        setattr(sys, name, protected)


def accept_utf8() -> None:
    """Read stdin as UTF-8 if the locale only knows ASCII: then it says nothing about other characters.

    Bytes that do not decode fail the line that has them, not the reading.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        unknown = codecs.lookup(sys.stdin.encoding).name == "ascii"
        sys.stdin.reconfigure(encoding="utf-8" if unknown else None, errors="surrogateescape")


def lost_output() -> OSError | None:
    """Return why a part of stdout was dropped; None: all of it was written."""
    sys.stdout.flush()
    descriptor = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return descriptor.error if isinstance(descriptor, _Descriptor) else None


def say(text: str, *, lines: bool = False) -> None:
    """Print one line on stdout."""
    sys.stdout.write(f"{visible(text, lines=lines)}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Print one line on stderr; line breaks in it are escaped."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def print_json(value: Any) -> None:
    """Print a value as one line of JSON on stdout."""
    sys.stdout.write(f"{json_line(value)}\n")


def print_result(values: Mapping[str, Any]) -> None:
    """Print the line for machines, ``RESULT {json}``, on stdout."""
    sys.stdout.write(f"RESULT {json_line(values)}\n")
    sys.stdout.flush()


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", None) or record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json_line(entry, default=str)


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send the library's log to stderr as JSON lines; ``extra={"fields": {...}}`` adds fields."""
    logger = logging.getLogger("lsr_prod")
    for handler in [handler for handler in logger.handlers if isinstance(handler.formatter, _JsonLines)]:
        logger.removeHandler(handler)  # its stream may be closed
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(level)
