"""The commands ``sweep`` and ``tune``, which choose settings by measuring them."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.jobs.terminal.shell import Job, scalars
from lsr_prod.jobs.terminal.tables import print_columns, print_table
from lsr_prod_contrib.sweeps.job import run_sweep
from lsr_prod_contrib.sweeps.report import COSTS
from lsr_prod_contrib.sweeps.tuning import tune_index


def _print_sweep(summary: Mapping[str, Any]) -> None:
    costs = [name for name in COSTS if name != summary["cost"]]
    headings = ["collection", "setting", summary["measure"], summary["cost"], *costs]
    rows = [
        [row["collection"], row["setting"], row["value"], row[summary["cost"]], *(row[cost] for cost in costs)]
        for row in summary["front"]
    ]
    print_columns(f"Pareto front of {summary['measure']} against {summary['cost']}", headings, rows)
    print_table("lsr-prod sweep", scalars(summary))


@partial(Job, "sweep", needs=("sweep",), show=_print_sweep, pages=True)
def sweep(deployment: Deployment) -> Mapping[str, Any]:
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
    return run_sweep(deployment)


def _print_tuning(summary: Mapping[str, Any]) -> None:
    rows = [[row["threshold"], row["hybrid_weight"], row["value"]] for row in summary["curve"]]
    print_columns("measured candidates", ["threshold", "words", summary["measure"]], rows)
    print_table("lsr-prod tune", scalars(summary))


@partial(Job, "tune", needs=("tune",), show=_print_tuning)
def tune(deployment: Deployment) -> Mapping[str, Any]:
    """Choose the hybrid weight and the overlap threshold of a published index on judged queries or clicks.

        lsr-prod tune --config deployment.yaml [--tune.thresholds 0 --tune.thresholds 0.4]

    Reads the sections ``tune`` and ``storage``. The index needs postings of words (``index.bm25: true``). Each candidate is
    measured with the searches of the product; the choice is validated on queries that it did not see, fold by fold.

    Writes ``tune.json`` and ``patch.yaml`` if ``tune.output`` names a folder. Apply the patch by giving both files to a
    job: ``--config deployment.yaml --config patch.yaml``.

    Prints the curve, the choice with its cross-validated value and interval, and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
    """
    return tune_index(deployment).result()
