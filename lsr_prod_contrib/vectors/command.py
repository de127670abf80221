"""The command ``vectors``."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.jobs.terminal.shell import Job
from lsr_prod_contrib.vectors.job import move_vectors


@partial(Job, "vectors", needs=("vectors",))
def vectors(deployment: Deployment) -> Mapping[str, Any]:
    """Import vectors of other tools into a sparse table, or export a sparse table as vectors for them.

        lsr-prod vectors --config deployment.yaml [--vectors.action import --vectors.paths vectors/]

    Reads the sections ``vectors`` and ``storage``. Imports JSONL and topics of Anserini, CSR matrices of scipy and
    of BigANN, and CIFF, in one commit, into a table that ``lsr-prod index build`` reads; rows that are not vectors are
    written to a quarantine next to the table with their reason. Exports a table as JSONL, as a CSR matrix, as CIFF or as
    Parquet.

    Prints a table and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
    """
    return move_vectors(deployment)
