"""Score training rows with a teacher, for distillation.

    lsr-prod score --config deployment.yaml [--score.teacher.kind dense --score.teacher.model DIR]

Reads the sections ``score``, ``ray`` and ``storage``. The teacher is a cross-encoder, or a larger dense or sparse
encoder. It scores every document of every row of kind pairs, triples or negatives. The rows are Parquet that
``lsr-prod train`` reads as ``kind: scores``: one part per slice of the input, then ``_manifest.json``. Rows that are
invalid, or on which the teacher fails, are written to ``_quarantine`` in the same folder with their reason. An
interrupted job is resumed by the same command; a finished one has nothing to do.

Prints a table and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
"""

from collections.abc import Sequence

from lsr_prod.jobs.terminal.run import Job, run_job
from lsr_prod.training.scoring.job import score_training_rows

JOB = Job("score", __doc__, needs=("score",))


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, score_training_rows, argv)
