"""Run a job of a deployment: read the settings, do the work, print the closing tables and ``RESULT {json}``."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lsr_prod.config import load_deployment
from lsr_prod.config.load import settings_parser
from lsr_prod.jobs.terminal.log import log_to_stderr
from lsr_prod.jobs.terminal.output import print_result
from lsr_prod.jobs.terminal.report import MakePages, check_report, write_report
from lsr_prod.jobs.terminal.shell import exit_code
from lsr_prod.jobs.terminal.tables import print_table


@dataclass(frozen=True, slots=True)
class Job:
    """Command line of a job."""

    name: str  # the subcommand
    manual: str | None  # text of ``--help``
    needs: tuple[str, ...]  # sections of the deployment that the job requires
    optional: tuple[str, ...] = ()  # sections that it reads if they are given
    options: argparse.ArgumentParser | None = None  # further options; ``work`` gets their values
    # returns the part of a summary that the ``RESULT`` line has; None: all of it
    brief: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    # makes the pages that the job writes at its end if ``report`` is set; None: it writes none
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

    return exit_code(job.name, run, output_required=False)


def scalars(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a summary without its lists and mappings."""
    return {key: value for key, value in summary.items() if not isinstance(value, dict | list)}
