"""Hide documents of a published index until they are restored.

    lsr-prod index takedown --config deployment.yaml --id doc1 --id doc2 [--note "request 17"]
    lsr-prod index takedown --config deployment.yaml --file ids.txt

Reads the sections ``index`` and ``storage``; ``ids.txt`` has one id per line. Nothing is built: a new version with
tombstones is published, which readers see at their next refresh. Every later build hides the documents too, even if
they are encoded again. ``lsr-prod index restore`` ends a takedown.

Prints a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.indexing import delete_documents
from lsr_prod.jobs.index_changes import index_to_change
from lsr_prod.jobs.terminal.run import Job, run_job
from lsr_prod.jobs.terminal.shell import id_options, read_ids

JOB = Job("index takedown", __doc__, needs=("index",), options=id_options("index takedown"))


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, _take_down, argv)


def _take_down(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    began = time.perf_counter()
    ids = read_ids(given)
    with index_to_change(deployment) as (index, workers):
        done = delete_documents(index, ids, given.note, workers=workers)
    return {
        "ids": len(set(ids)),
        "documents_hidden": done.changed,
        "documents": done.documents,
        "takedowns": done.takedowns,
        "version": done.publication.version,
        "publication": done.publication.number,
        "seconds": round(time.perf_counter() - began, 3),
    }
