"""Vectors of other tools into a sparse table, or a sparse table into vectors for them.

    python jobs/vectors.py --config deployment.yaml [--vectors.action import --vectors.paths vectors/]

Reads the section ``vectors`` (and ``storage``). Imports Anserini's JSONL and topics and CSR matrices of scipy into a
table that jobs/index.py indexes, in one commit; what is no vector goes to a JSONL file beside the table with its
reason. Exports a table as JSONL or as a CSR matrix. Ends with a table and one line ``RESULT {json}``. Exit codes: 0
done, 1 failed, 2 bad configuration (nothing written).
"""

from collections.abc import Sequence

from lsr_prod.interchange.job import move_vectors
from lsr_prod.jobs.run import run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    return run_job(move_vectors, job="jobs/vectors.py", description=__doc__, needs=("vectors",), argv=argv)


if __name__ == "__main__":
    raise SystemExit(main())
