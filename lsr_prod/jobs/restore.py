"""End the takedown of documents of a published index.

    lsr-prod index restore --config deployment.yaml --id doc1 [--note "request 17 withdrawn"]
    lsr-prod index restore --config deployment.yaml --file ids.txt

Reads the sections ``index`` and ``storage``; ``ids.txt`` has one id per line. Documents that the index's version of the
table has are found again at once; the others return when a reindex finds them in the table.

Prints a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.indexing import restore_documents
from lsr_prod.jobs.index_changes import index_to_change
from lsr_prod.jobs.terminal.run import Job, run_job
from lsr_prod.jobs.terminal.shell import id_options, read_ids

JOB = Job("index restore", __doc__, needs=("index",), options=id_options("index restore"))


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, _restore, argv)


def _restore(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    began = time.perf_counter()
    ids = read_ids(given)
    with index_to_change(deployment) as (index, workers):
        options = deployment.storage.options
        done = restore_documents(index, ids, given.note, options=options, workers=workers)
    return {
        "ids": len(set(ids)),
        "documents_restored": done.changed,
        "documents": done.documents,
        "takedowns": done.takedowns,
        "version": done.publication.version,
        "publication": done.publication.number,
        "seconds": round(time.perf_counter() - began, 3),
    }
