"""Print what a model directory was made from, step by step.

    lsr-prod inspect lineage MODEL [--work FOLDER]

Without ``--work`` only the last step is known; with the folder or URI that the chain worked in, every step is printed.
Exit codes: 0 done, 1 failed, 2 bad usage.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lsr_prod.jobs.terminal.shell import CommandParser, add_store_option, exit_code, location, store_options

if TYPE_CHECKING:
    from lsr_prod.training.lineage import Ancestor


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = CommandParser("inspect lineage", __doc__)
    options.add_argument("model", metavar="MODEL", type=location, help="folder or URI of a model directory")
    add_store_option(options)
    options.add_argument(
        "--work", metavar="FOLDER", type=location, help="folder or URI that the chain of the model worked in"
    )
    return options


def main(argv: Sequence[str]) -> int:
    """Print the lineage; returns the exit code."""
    return exit_code("inspect lineage", lambda: _lineage(argv))


def print_lineage(ancestors: Sequence["Ancestor"]) -> None:
    """Print a model and the models it was made from, newest first; digests of models are printed in full."""
    from lsr_prod.jobs.terminal.tables import print_columns

    rows = []
    for ancestor in ancestors:
        training = ancestor.training or {}
        seed = training.get("settings", {}).get("seed")
        rows.append(
            [
                ancestor.model,
                training.get("stage"),
                training.get("rows"),
                training.get("steps"),
                seed,
                (training.get("training_set") or "")[:12],
            ]
        )
    print_columns("lineage", ("model", "made by", "rows", "steps", "seed", "training set"), rows, whole_digests=True)


def _lineage(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    from lsr_prod.storage import Store
    from lsr_prod.storage.folders import open_folder
    from lsr_prod.training.lineage import lineage

    options = store_options(given)
    print_lineage(lineage(open_folder(given.model, options), Store(given.work, options) if given.work else None))
