"""Measure models, prunings, thresholds and hybrid weights on collections, and choose the cheapest good setting.

    lsr-prod sweep --config deployment.yaml [--sweep.within 0.02 --sweep.cost bytes]

Reads the sections ``sweep``, ``ray`` and ``storage``. Every text is encoded once per model; a task per model,
collection and ``dk`` measures its points with an index in memory. An interrupted sweep is resumed by the same command;
changed lists of settings compute only what is new.

Writes ``sweep.json`` (all points, Pareto fronts, the choice) and ``patch.yaml`` to ``sweep.output``. Apply the patch by
giving both files to a job: ``--config deployment.yaml --config patch.yaml``.

With ``report`` it also writes the page of the sweep.

Prints the settings on the Pareto fronts, the choice, and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lsr_prod.config import Deployment
from lsr_prod.evaluation.sweeps.job import run_sweep
from lsr_prod.evaluation.sweeps.report import COSTS
from lsr_prod.jobs.terminal.run import Job, run_job, scalars
from lsr_prod.jobs.terminal.tables import print_columns, print_table
from lsr_prod.storage.folders import open_text

if TYPE_CHECKING:
    from lsr_prod.operations.pages import Page


def _pages(deployment: Deployment, summary: Mapping[str, Any]) -> list["Page"]:
    from lsr_prod.operations.pages.sweep import sweep_page

    with open_text(summary["report"], deployment.storage.options) as file:
        return [sweep_page(json.load(file))]


JOB = Job("sweep", __doc__, needs=("sweep",), pages=_pages)


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, run_sweep, argv, _print_sweep)


def _print_sweep(summary: Mapping[str, Any]) -> None:
    costs = [name for name in COSTS if name != summary["cost"]]
    headings = ["collection", "setting", summary["measure"], summary["cost"], *costs]
    rows = [
        [row["collection"], row["setting"], row["value"], row[summary["cost"]], *(row[cost] for cost in costs)]
        for row in summary["front"]
    ]
    print_columns(f"Pareto front of {summary['measure']} against {summary['cost']}", headings, rows)
    print_table("lsr-prod sweep", scalars(summary))
