"""Run a job of a deployment: read the settings, do the work, print the closing tables and ``RESULT {json}``."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import getdoc
from typing import TYPE_CHECKING, Any

from lsr_prod.extras import contrib, missing_extra
from lsr_prod.jobs.terminal.output import log_to_stderr, print_result, say
from lsr_prod.jobs.terminal.shell import AddOptions, CommandParser, exit_code

if TYPE_CHECKING:
    from lsr_prod.config import Deployment

_Summary = Mapping[str, Any]
_Work = Callable[..., _Summary | int]


@dataclass(frozen=True, slots=True)
class Job:
    """A command that reads a deployment: ``@partial(Job, "mine", needs=("mine",))`` makes it of a function.

    The docstring of the function is the manual. It gets the deployment, and the values of the options if there are any.
    It returns the summary of its work, or the exit code if it has printed everything itself.
    """

    name: str  # its words after lsr-prod
    work: _Work
    needs: tuple[str, ...]  # sections of the deployment that the job requires
    optional: tuple[str, ...] = ()  # sections that it reads if they are given
    add_options: AddOptions | None = None  # adds further options to the parser
    show: Callable[[_Summary], None] | None = None  # prints the summary; None: a table of its figures
    brief: Callable[[_Summary], _Summary] | None = None  # the part of a summary that ``RESULT`` has; None: all of it
    pages: bool = False  # it writes pages if ``report`` is set
    output_required: bool = False  # the job fails if the reader of stdout leaves

    def parser(self) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        from lsr_prod.config.load import settings_parser

        sections = (*self.needs, *self._more_sections())
        return settings_parser(f"lsr-prod {self.name}", getdoc(self.work) or "", sections, self._options())[0]

    def run(self, argv: Sequence[str]) -> int:
        """Run the job; returns its exit code."""
        return exit_code(self.name, lambda: self._run(argv), output_required=self.output_required)

    def _more_sections(self) -> tuple[str, ...]:
        return (*self.optional, "report") if self.pages else self.optional

    def _options(self) -> CommandParser | None:
        if self.add_options is None:
            return None
        options = CommandParser(self.name)
        self.add_options(options)
        return options

    def _run(self, argv: Sequence[str]) -> int:
        from lsr_prod.config import load_deployment

        log_to_stderr()
        options = self._options()
        deployment = load_deployment(
            argv,
            job=f"lsr-prod {self.name}",
            description=getdoc(self.work) or "",
            needs=self.needs,
            optional=self._more_sections(),
            options=options,
        )
        given = options.parse_known_args(argv)[0] if options else None
        reports = None
        if deployment.report is not None and not getattr(given, "dry_run", False):
            reports = _load_reports(deployment)
        summary = self.work(deployment) if given is None else self.work(deployment, given)
        if isinstance(summary, int):
            return summary
        self._show(summary)
        brief = summary if self.brief is None else self.brief(summary)
        if reports is None:
            print_result(brief)
            return 0
        pages: list[str] = []
        try:
            pages = reports.write_report(deployment, self.name, summary)
            for place in pages:
                say(f"page  {place}")
        finally:  # the work is done, even if a page cannot be written
            print_result({**brief, "pages": pages})
        return 0

    def _show(self, summary: _Summary) -> None:
        if self.show is not None:
            self.show(summary)
            return
        from lsr_prod.jobs.terminal.tables import print_table

        print_table(f"lsr-prod {self.name}", scalars(summary))


def scalars(summary: _Summary) -> dict[str, Any]:
    """Return the figures of a summary without its lists and mappings."""
    return {key: value for key, value in summary.items() if not isinstance(value, dict | list)}


def _load_reports(deployment: "Deployment") -> Any:
    """Return the module that writes pages, and check everything that it needs, before the job does its work."""
    try:
        reports = contrib("pages.reports")
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    reports.report_cluster(deployment)
    return reports
