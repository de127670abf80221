"""What every job does around its work: settings, logging, exit codes, and the table at the end.

Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
"""

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from lsr_prod.config import Deployment, load_deployment
from lsr_prod.errors import ConfigError, LsrError, MissingExtraError

__all__ = ["log_to_stderr", "print_result", "print_table", "run_job"]

log = logging.getLogger(__name__)


def run_job(
    work: Callable[[Deployment], Mapping[str, Any]],
    *,
    job: str,
    description: str | None,
    needs: Sequence[str],
    argv: Sequence[str] | None = None,
) -> int:
    """Load the settings, do the work, print its summary as a table and one line ``RESULT {json}``.

    Args:
        work: takes the deployment and returns a flat summary; it checks its inputs before it writes anything.
        job: the program's name, for example ``jobs/encode.py``.
        description: text of ``--help``.
        needs: sections of the deployment that the job reads.
        argv: command line; default ``sys.argv[1:]``.

    Returns:
        The exit code.
    """
    log_to_stderr()
    try:
        deployment = load_deployment(
            sys.argv[1:] if argv is None else argv, job=job, description=description or "", needs=needs
        )
        summary = work(deployment)
    except (ConfigError, MissingExtraError) as error:
        sys.stderr.write(f"{job}: {error}\n")
        return 2
    except LsrError as error:
        sys.stderr.write(f"{job} failed: {type(error).__name__}: {error}\n")
        return 1
    print_table(job, {key: value for key, value in summary.items() if not isinstance(value, dict | list)})
    print_result(summary)
    return 0


def print_table(title: str, rows: Mapping[str, Any]) -> None:
    """Print a summary as two columns on stdout."""
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in rows.items():
        table.add_row(
            name,
            f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value),
        )
    Console().print(table)


def print_result(values: Mapping[str, Any]) -> None:
    """Print the one line for machines: ``RESULT {json}`` on stdout."""
    sys.stdout.write(f"RESULT {json.dumps(values)}\n")
    sys.stdout.flush()


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send the library's log to stderr as JSON lines; ``extra={"fields": {...}}`` adds fields."""
    logger = logging.getLogger("lsr_prod")
    for handler in [handler for handler in logger.handlers if isinstance(handler.formatter, _JsonLines)]:
        logger.removeHandler(handler)  # it may hold an earlier stderr
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(level)
