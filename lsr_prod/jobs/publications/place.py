"""The index that a subcommand works on: INDEX, or ``index.output`` of a deployment."""

import argparse
from typing import TYPE_CHECKING

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.terminal.shell import CommandParser, add_store_option, location, store_options

if TYPE_CHECKING:
    from lsr_prod.storage import Store


def index_parser(name: str, manual: str | None) -> CommandParser:
    """Return a parser with the arguments that name an index, and ``--json``."""
    options = CommandParser(name, manual)
    options.add_argument("index", metavar="INDEX", nargs="?", type=location, help="folder or URI of an index")
    options.add_argument("--config", metavar="FILE", help="YAML file of the deployment, instead of INDEX")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_option(options)
    return options


def open_place(name: str, given: argparse.Namespace) -> "Store":
    """Return the index that the arguments of ``index_parser`` name."""
    if (given.index is None) == (given.config is None):
        raise ConfigError("command line", "give either INDEX or --config", f"see lsr-prod {name} --help")
    from lsr_prod.storage import Store
    from lsr_prod.storage.folders import absolute

    if given.config is None:
        return Store(absolute(given.index), store_options(given))
    from lsr_prod.config import load_deployment

    arguments = ["--config", given.config]
    deployment = load_deployment(arguments, job=f"lsr-prod {name}", description="", needs=("index",))
    assert deployment.index is not None
    return Store(absolute(deployment.index.output), {**deployment.storage.options, **store_options(given)})
