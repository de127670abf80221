"""Choose the hybrid weight and the overlap threshold of a published index on judged queries or clicks.

    lsr-prod tune --config deployment.yaml [--tune.thresholds 0 --tune.thresholds 0.4]

Reads the sections ``tune`` and ``storage``. The index needs postings of words (``index.bm25: true``). Each candidate is
measured with the searches of the product; the choice is validated on queries that it did not see, fold by fold.

Writes ``tune.json`` and ``patch.yaml`` if ``tune.output`` names a folder. Apply the patch by giving both files to a
job: ``--config deployment.yaml --config patch.yaml``.

Prints the curve, the choice with its cross-validated value and interval, and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.evaluation.tuning import tune_index
from lsr_prod.jobs.terminal.run import Job, run_job, scalars
from lsr_prod.jobs.terminal.tables import print_columns, print_table

JOB = Job("tune", __doc__, needs=("tune",))


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, lambda deployment: tune_index(deployment).result(), argv, _print_tuning)


def _print_tuning(summary: Mapping[str, Any]) -> None:
    rows = [[row["threshold"], row["hybrid_weight"], row["value"]] for row in summary["curve"]]
    print_columns("measured candidates", ["threshold", "words", summary["measure"]], rows)
    print_table("lsr-prod tune", scalars(summary))
