"""Run a job of a deployment: read the settings, do the work, print the closing tables and ``RESULT {json}``."""

import argparse
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lsr_prod.config import load_deployment
from lsr_prod.config.load import settings_parser
from lsr_prod.jobs.terminal.report import MakePages, check_report, write_report
from lsr_prod.jobs.terminal.shell import exit_code
from lsr_prod.jobs.terminal.tables import print_table

__all__ = ["Job", "log_to_stderr", "print_result", "run_job", "scalars"]


@dataclass(frozen=True, slots=True)
class Job:
    """Command line of a job.

    Attributes:
        name: the subcommand.
        manual: text of ``--help``.
        needs: sections of the deployment that the job requires.
        optional: sections that it reads if they are given.
        options: further options; ``work`` gets their values.
        brief: returns the part of a summary that the ``RESULT`` line has; None: all of it.
        pages: makes the pages that the job writes at its end if ``report`` is set; None: it writes none.
    """

    name: str
    manual: str | None
    needs: tuple[str, ...]
    optional: tuple[str, ...] = ()
    options: argparse.ArgumentParser | None = None
    brief: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    pages: MakePages | None = None

    @property
    def sections(self) -> tuple[str, ...]:
        """All sections that the job reads."""
        return (*self.needs, *self.optional, *(() if self.pages is None else ("report",)))

    def parser(self) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        return settings_parser(f"lsr-prod {self.name}", self.manual or "", self.sections, self.options)[0]


def run_job(
    job: Job,
    work: Callable[..., Mapping[str, Any]],
    argv: Sequence[str],
    show: Callable[[Mapping[str, Any]], None] | None = None,
) -> int:
    """Load the settings, do the work, print its summary as tables and one line ``RESULT {json}``.

    Args:
        job: the command line.
        work: takes the deployment, and the parsed options of a job that has some; returns a flat summary. It checks its
            inputs before it writes anything.
        argv: arguments of the subcommand.
        show: prints the summary; default: one row per figure.

    Returns:
        The exit code.
    """

    def run() -> None:
        log_to_stderr()
        deployment = load_deployment(
            argv,
            job=f"lsr-prod {job.name}",
            description=job.manual or "",
            needs=job.needs,
            optional=job.sections[len(job.needs) :],
            options=job.options,
        )
        given = job.options.parse_known_args(argv)[0] if job.options else None
        make = job.pages if deployment.report is not None and not getattr(given, "dry_run", False) else None
        if make is not None:
            check_report(deployment)
        summary = work(deployment) if given is None else work(deployment, given)
        if show is None:
            print_table(f"lsr-prod {job.name}", scalars(summary))
        else:
            show(summary)
        brief = summary if job.brief is None else job.brief(summary)
        if make is None:
            print_result(brief)
            return
        pages: list[str] = []
        try:
            pages = write_report(deployment, make, summary)
        finally:  # the work is done, even if a page cannot be written
            print_result({**brief, "pages": pages})

    return exit_code(job.name, run)


def scalars(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a summary without its lists and mappings."""
    return {key: value for key, value in summary.items() if not isinstance(value, dict | list)}


def print_result(values: Mapping[str, Any]) -> None:
    """Print the line for machines, ``RESULT {json}``, on stdout."""
    sys.stdout.write(f"RESULT {json.dumps(values)}\n")
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
        return json.dumps(entry, default=str)


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
