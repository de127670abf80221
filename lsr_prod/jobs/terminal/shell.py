"""Commands and jobs of ``lsr-prod``: how their command line is parsed, how they run, and their exit codes.

A ``Command`` has its arguments on the command line. A ``Job`` reads a deployment, does its work, and prints closing
tables and ``RESULT {json}``. ``add_store_option`` and its like add arguments that several commands have.
"""

import argparse
import errno
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lsr_prod import errors, extras, logs
from lsr_prod.jobs.terminal.output import complain, log_to_stderr, lost_output, print_result, say
from lsr_prod.storage import disk, signatures
from lsr_prod.storage.location import is_credential, location_problem, normalize_options, path_problem

if TYPE_CHECKING:
    from lsr_prod.config import Deployment

log = logging.getLogger(__name__)

_Summary = Mapping[str, Any]
_Work = Callable[..., _Summary | int]


class CommandParser(argparse.ArgumentParser):
    """Argument parser that reports bad usage as a ``ConfigError``."""

    def __init__(self, name: str, manual: str | None = None) -> None:
        super().__init__(
            prog=f"lsr-prod {name}",
            description=manual,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_help=manual is not None,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving the process."""
        if message.startswith("unrecognized"):  # without values: one may be a credential
            message = " ".join(word.partition("=")[0] for word in message.split())
        raise errors.ConfigError("command line", message, f"see {self.prog} --help")


AddOptions = Callable[[CommandParser], None]
"""Adds the options of a command to its parser."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that has its arguments on the command line: ``@partial(Command, "search", add_options=...)`` makes it
    of a function.

    The docstring of the function is the manual. It gets the arguments and returns the exit code; None is 0.
    """

    name: str  # its words after lsr-prod
    work: Callable[[argparse.Namespace], int | None]
    add_options: AddOptions  # adds the arguments to the parser
    output_required: bool = True  # the command fails if the reader of stdout leaves

    def parser(self) -> CommandParser:
        """Return the parser of the command line."""
        parser = CommandParser(self.name, getdoc(self.work) or "")
        self.add_options(parser)
        return parser

    def run(self, argv: Sequence[str]) -> int:
        """Run the command; returns its exit code."""
        required = self.output_required
        return exit_code(self.name, lambda: self.work(self.parser().parse_args(argv)), output_required=required)


@cache
def _parser_of_options(name: str, add_options: AddOptions) -> CommandParser:
    options = CommandParser(name)
    add_options(options)
    return options


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
        return None if self.add_options is None else _parser_of_options(self.name, self.add_options)

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
        if self.pages and deployment.report is not None and not getattr(given, "dry_run", False):
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


def exit_code(name: str, work: Callable[[], int | None], *, output_required: bool = True) -> int:
    """Run a subcommand and turn an error into one line on stderr.

    The traceback of an error that is not one of ``lsr_prod`` goes to the log, for a report.

    Returns:
        0 or the value of ``work``; 1: it failed; 2: bad usage, bad configuration or a missing extra; 130: interrupted;
        141: the reader of stdout has closed it, and the output is required.
    """
    code = _run(name, work)
    error = lost_output()
    if error is None:
        return code
    if error.errno != errno.EPIPE:
        complain(f"lsr-prod {name}: stdout cannot be written ({error}); redirect it to a place with room")
    if not output_required:
        return code
    return code or (141 if error.errno == errno.EPIPE else 1)


def scalars(summary: _Summary) -> dict[str, Any]:
    """Return the figures of a summary without its lists and mappings."""
    return {key: value for key, value in summary.items() if not isinstance(value, dict | list)}


def location(value: str) -> str:
    """Return an argument that is a path or a URI."""
    if (problem := location_problem(value)) is not None:
        raise argparse.ArgumentTypeError(f"{logs.without_credentials(value)!r} is not possible; {problem}")
    return value


def local_path(value: str) -> Path:
    """Return an argument that is a path of this machine."""
    if (problem := path_problem(value)) is not None:
        raise argparse.ArgumentTypeError(f"{logs.without_credentials(value)!r} is not possible; {problem}")
    return Path(value)


def add_store_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--store-option`` to a subcommand that reads no deployment, for ``store_options``."""
    text = "option of the object store of a URI, as in storage.options; may be repeated"
    parser.add_argument("--store-option", action="append", default=[], metavar="NAME=VALUE", help=text)


def store_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of ``add_store_option``."""
    options = {}
    for text in given.store_option:
        name, sign, value = text.partition("=")
        if is_credential(name):
            raise errors.ConfigError(f"--store-option {name}", "it is a credential", "set it in the environment")
        if not sign:
            raise errors.ConfigError(f"--store-option {name}", "it has no value", "write NAME=VALUE")
        options[name] = value
    return normalize_options(options)


def add_fields_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--fields`` to a subcommand that reads documents of an index."""
    text = "stored fields with the encoded text; default: index.text_fields"
    parser.add_argument("--fields", nargs="+", default=[], metavar="FIELD", help=text)


def add_place(parser: argparse.ArgumentParser, metavar: str, help_text: str) -> None:
    """Add an optional place, and ``--config`` for the deployment that names it instead, for ``deployment_of``."""
    parser.add_argument(metavar.lower(), metavar=metavar, nargs="?", type=location, help=help_text)
    parser.add_argument("--config", metavar="FILE", help=f"YAML file of the deployment, instead of {metavar}")


def deployment_of(given: argparse.Namespace, name: str, metavar: str, section: str) -> "Deployment | None":
    """Return the deployment of ``--config``, which has the section; None: the place is given instead."""
    if (getattr(given, metavar.lower()) is None) == (given.config is None):
        raise errors.ConfigError("command line", f"give either {metavar} or --config", f"see lsr-prod {name} --help")
    if given.config is None:
        return None
    from lsr_prod.config import load_deployment

    return load_deployment(["--config", given.config], job=f"lsr-prod {name}", description="", needs=(section,))


def _run(name: str, work: Callable[[], int | None]) -> int:
    try:
        signatures.check_keys()
        return work() or 0
    except SystemExit as ended:  # argparse ends the process after --help
        return int(ended.code or 0)
    except KeyboardInterrupt:
        complain(f"lsr-prod {name} was interrupted")
        return 130
    except Exception as raised:  # noqa: BLE001 - the end of every command: the error and its traceback are reported
        error = _with_extra(_below_ray(name, raised))
        error = disk.disk_error(error, f"a file of lsr-prod {name}") or error
        if isinstance(error, errors.ConfigError | errors.MissingExtraError):
            complain(f"lsr-prod {name}: {error}")
            return 2
        if isinstance(error, errors.LsrError):
            complain(f"lsr-prod {name} failed: {type(error).__name__}: {error}")
            return 1
        if isinstance(error, OSError) and error.filename and error.errno in (errno.EACCES, errno.ENAMETOOLONG):
            complain(f"lsr-prod {name} failed: {error.filename} cannot be used ({error.strerror}); give another path")
            return 1
        return _unexpected(name, error)


def _unexpected(name: str, error: Exception) -> int:
    """Log an error that no part of the job expects, with its traceback, and say so in one line."""
    log_to_stderr()
    log.error("unexpected error", exc_info=error)
    complain(
        f"lsr-prod {name} failed: {type(error).__name__}: {logs.without_credentials(str(error))}; lsr_prod does not expect "
        "this error: please report it with the line of the log before this one"
    )
    return 1


def _below_ray(name: str, error: Exception) -> Exception:
    """Return the error of ours for one of Ray, which may be an instance of both and have a traceback as its message."""
    if sys.modules.get("ray") is None:
        return error
    from ray.exceptions import RayError

    from lsr_prod.cluster.tasks import worker_error

    return worker_error(error, f"lsr-prod {name}") if isinstance(error, RayError) else error


def _with_extra(error: Exception) -> Exception:
    """Return the error that names the extra for a module that is not installed; other errors as they are."""
    if isinstance(error, ModuleNotFoundError):
        with suppress(ModuleNotFoundError):  # no extra brings it
            return extras.missing_extra(error)
    return error


def _load_reports(deployment: "Deployment") -> Any:
    """Return the module that writes pages, and check everything that it needs, before the job does its work."""
    try:
        reports = extras.contrib("pages.reports")
    except ModuleNotFoundError as error:
        raise extras.missing_extra(error) from error
    reports.report_cluster(deployment)
    return reports
