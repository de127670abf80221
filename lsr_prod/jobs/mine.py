"""Mine hard negatives for training pairs with a published index.

    lsr-prod mine --config deployment.yaml [--mine.negatives 15 --mine.margin_ratio 0.95]

Reads the sections ``mine``, ``ray`` and ``storage``. Every query is searched in the index. A hit becomes a negative
unless it is a positive of that query anywhere in the data, scores above the margin (by the index, or by the scores of a
teacher), or repeats the text of another. The rows are Parquet that ``lsr-prod train`` reads as ``kind: negatives``, and
with ``mine.scores`` as ``kind: scores``: one part per slice of the pairs, then ``_manifest.json``. Rows that are not
pairs, or have too few negatives, are written to ``_quarantine`` in the same folder with their reason. An interrupted
job is resumed by the same command; a finished one has nothing to do.

Prints a table and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
"""

from collections.abc import Sequence

from lsr_prod.jobs.terminal.run import Job, run_job
from lsr_prod.training.negatives.job import mine_negatives

JOB = Job("mine", __doc__, needs=("mine",))


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, mine_negatives, argv)
