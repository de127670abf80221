"""The log of a job: JSON lines on stderr."""

import logging

from lsr_prod.visible import json_line


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
