"""The command ``inspect lineage``, which prints what a model was made from."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from lsr_prod.jobs.terminal.shell import Command, CommandParser, add_store_option, location, store_options
from lsr_prod.jobs.terminal.tables import print_columns

if TYPE_CHECKING:
    from lsr_prod.training.lineage import Ancestor


def _add_lineage_options(parser: CommandParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=location, help="folder or URI of a model directory")
    add_store_option(parser)
    parser.add_argument(
        "--work", metavar="FOLDER", type=location, help="folder or URI that the chain of the model worked in"
    )


@partial(Command, "inspect lineage", add_options=_add_lineage_options)
def lineage(given: argparse.Namespace) -> None:
    """Print what a model directory was made from, step by step.

        lsr-prod inspect lineage MODEL [--work FOLDER]

    Without ``--work`` only the last step is known; with the folder or URI that the chain worked in, every step is printed.
    Exit codes: 0 done, 1 failed, 2 bad usage.
    """
    from lsr_prod.storage import Store
    from lsr_prod.storage.folders import open_folder
    from lsr_prod.training.lineage import lineage

    options = store_options(given)
    print_lineage(lineage(open_folder(given.model, options), Store(given.work, options) if given.work else None))


def print_lineage(ancestors: Sequence["Ancestor"]) -> None:
    """Print a model and the models it was made from, newest first; digests of models are printed in full."""
    rows = []
    for ancestor in ancestors:
        training = ancestor.training or {}
        made = [training.get(name) for name in ("stage", "rows", "steps")]
        seed = training.get("settings", {}).get("seed")
        rows.append([ancestor.model, *made, seed, (training.get("training_set") or "")[:12]])
    print_columns("lineage", ("model", "made by", "rows", "steps", "seed", "training set"), rows, whole_digests=True)
