"""Train a model by a chain of stages, each from a model directory to a model directory.

    lsr-prod train --config deployment.yaml [--train.workers 8 --train.use_gpu true]
    lsr-prod train --config deployment.yaml --dry-run
    ray job submit --working-dir . -- python jobs/train.py --config deployment.yaml

Reads the sections ``train``, ``ray`` and ``storage``; ``jobs/recipes`` in the repository has complete examples. All
settings are checked before anything is written. Finished stages are skipped; a changed stage runs again, and so do the
stages after it. An interrupted job is resumed inside its stage by the same command. ``lsr-prod inspect lineage
MODEL`` prints what a model was made from.

With ``--dry-run`` nothing is written and Ray is not started: all settings are checked, all rows are read and validated,
and it prints per stage the rows, the rows that would be quarantined by reason, steps, memory, the hours from timed
steps of fine-tuning on this machine, and which stages are finished already.

Prints a table with one row per stage, a table of figures, and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.jobs.terminal.report import train_pages
from lsr_prod.jobs.terminal.run import Job, run_job, scalars
from lsr_prod.jobs.terminal.shell import CommandParser
from lsr_prod.jobs.terminal.tables import print_columns, print_table


def _options() -> CommandParser:
    options = CommandParser("train")
    options.add_argument("--dry-run", action="store_true", help="print what the run would do, and write nothing")
    return options


JOB = Job("train", __doc__, needs=("train",), options=_options(), pages=train_pages)

_FIGURES = ("steps", "rows", "loss", "l0_query", "l0_document", "start", "best", "seconds")


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, _train, argv, _print_chain)


def print_stages(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one row per stage of ``run_chain``; a skipped stage has the figures of the run that finished it."""
    print_columns(
        "stages",
        ("stage", "kind", "done", *_FIGURES, "model"),
        [
            [
                str(row["number"]),
                row["kind"],
                "before" if row["skipped"] else "now",
                *(row.get(name) for name in _FIGURES),
                row["model"],
            ]
            for row in rows
        ],
    )


def _train(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    # Imported after the settings are validated: torch and transformers take seconds to load.
    from transformers.utils.logging import disable_progress_bar

    from lsr_prod.training.chain import run_chain

    disable_progress_bar()  # type: ignore[no-untyped-call]
    if given.dry_run:
        from lsr_prod.training.dry_run import describe_chain

        return describe_chain(deployment)
    return run_chain(deployment)


def _print_chain(summary: Mapping[str, Any]) -> None:
    if "stages_finished" in summary:
        _print_dry_run(summary)
        return
    print_stages(summary["stage_rows"])
    print_table("lsr-prod train", scalars(summary))


def _print_dry_run(summary: Mapping[str, Any]) -> None:
    names = ("rows", "steps", "hours", "memory_bytes", "note")
    print_columns(
        "stages",
        ("stage", "kind", "done", "rows", "steps", "hours", "memory bytes", "note"),
        [
            [str(row["number"]), row["kind"], row["done"], *(row[name] for name in names)]
            for row in summary["stage_rows"]
        ],
    )
    bad = [
        [str(row["number"]), reason, count]
        for row in summary["stage_rows"]
        for reason, count in row["quarantined"].items()
    ]
    if bad:
        print_columns("rows that would be quarantined", ("stage", "reason", "rows"), bad)
    print_table("dry run", scalars(summary))
