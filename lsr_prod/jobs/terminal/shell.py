"""Shared by all commands: parsing of the command line, and exit codes. Needs the standard library only."""

import argparse
import errno
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from lsr_prod.credentials import without_credentials
from lsr_prod.errors import ConfigError, LsrError, MissingExtraError
from lsr_prod.extras import missing_extra
from lsr_prod.jobs.terminal.output import complain, log_to_stderr, lost_output
from lsr_prod.storage.disk import disk_error
from lsr_prod.storage.location import location_problem, path_problem
from lsr_prod.storage.options import is_credential, normalize_options
from lsr_prod.storage.signatures import check_keys

if TYPE_CHECKING:
    from lsr_prod.config import Deployment

log = logging.getLogger(__name__)


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
        raise ConfigError("command line", message, f"see {self.prog} --help")


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


def _run(name: str, work: Callable[[], int | None]) -> int:
    try:
        check_keys()
        return work() or 0
    except SystemExit as ended:  # argparse ends the process after --help
        return int(ended.code or 0)
    except KeyboardInterrupt:
        complain(f"lsr-prod {name} was interrupted")
        return 130
    except Exception as raised:  # noqa: BLE001 - the end of every command: the error and its traceback are reported
        error = _with_extra(_below_ray(name, raised))
        error = disk_error(error, f"a file of lsr-prod {name}") or error
        if isinstance(error, ConfigError | MissingExtraError):
            complain(f"lsr-prod {name}: {error}")
            return 2
        if isinstance(error, LsrError):
            complain(f"lsr-prod {name} failed: {type(error).__name__}: {error}")
            return 1
        return _unexpected(name, error)


def _unexpected(name: str, error: Exception) -> int:
    """Log an error that no part of the job expects, with its traceback, and say so in one line."""
    log_to_stderr()
    log.error("unexpected error", exc_info=error)
    complain(
        f"lsr-prod {name} failed: {type(error).__name__}: {without_credentials(str(error))}; lsr_prod does not expect "
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
            return missing_extra(error)
    return error


def location(value: str) -> str:
    """Return an argument that is a path or a URI."""
    if (problem := location_problem(value)) is not None:
        raise argparse.ArgumentTypeError(f"{without_credentials(value)!r} is not possible; {problem}")
    return value


def local_path(value: str) -> Path:
    """Return an argument that is a path of this machine."""
    if (problem := path_problem(value)) is not None:
        raise argparse.ArgumentTypeError(f"{without_credentials(value)!r} is not possible; {problem}")
    return Path(value)


def add_store_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--store-option`` to a subcommand that reads no deployment, for ``store_options``."""
    text = "option of the object store of a URI, as in storage.options; may be repeated"
    parser.add_argument("--store-option", action="append", default=[], metavar="NAME=VALUE", help=text)


def add_fields_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--fields`` to a subcommand that reads documents of an index."""
    text = "stored fields with the encoded text; default: index.text_fields"
    parser.add_argument("--fields", nargs="+", default=[], metavar="FIELD", help=text)


def store_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of ``add_store_option``."""
    options = {}
    for text in given.store_option:
        name, sign, value = text.partition("=")
        if is_credential(name):
            raise ConfigError(f"--store-option {name}", "it is a credential", "set it in the environment")
        if not sign:
            raise ConfigError(f"--store-option {name}", "it has no value", "write NAME=VALUE")
        options[name] = value
    return normalize_options(options)


def add_place(parser: argparse.ArgumentParser, metavar: str, help_text: str) -> None:
    """Add an optional place, and ``--config`` for the deployment that names it instead, for ``deployment_of``."""
    parser.add_argument(metavar.lower(), metavar=metavar, nargs="?", type=location, help=help_text)
    parser.add_argument("--config", metavar="FILE", help=f"YAML file of the deployment, instead of {metavar}")


def deployment_of(given: argparse.Namespace, name: str, metavar: str, section: str) -> "Deployment | None":
    """Return the deployment of ``--config``, which has the section; None: the place is given instead."""
    if (getattr(given, metavar.lower()) is None) == (given.config is None):
        raise ConfigError("command line", f"give either {metavar} or --config", f"see lsr-prod {name} --help")
    if given.config is None:
        return None
    from lsr_prod.config import load_deployment

    return load_deployment(["--config", given.config], job=f"lsr-prod {name}", description="", needs=(section,))
