"""Import vectors of other tools into a sparse table, or export a sparse table as vectors for them.

    lsr-prod vectors --config deployment.yaml [--vectors.action import --vectors.paths vectors/]

Reads the sections ``vectors`` and ``storage``. Imports JSONL and topics of Anserini, CSR matrices of scipy and
of BigANN, and CIFF, in one commit, into a table that ``lsr-prod index build`` reads; rows that are not vectors are
written to a quarantine next to the table with their reason. Exports a table as JSONL, as a CSR matrix, as CIFF or as
Parquet.

Prints a table and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
"""

from collections.abc import Sequence

from lsr_prod.encoding.interchange.job import move_vectors
from lsr_prod.jobs.terminal.run import Job, run_job

JOB = Job("vectors", __doc__, needs=("vectors",))


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, move_vectors, argv)
