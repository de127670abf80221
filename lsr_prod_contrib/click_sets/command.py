"""Make evaluation sets and training pairs from a click log.

    lsr-prod click-set --config deployment.yaml [--click_set.seed 1]

Reads the sections ``click_set`` and ``storage``. Queries are clustered by the documents that they share; a test set and
a validation set are drawn from the clusters, with the same number of queries from each third of the matched-term
ratio, up to 3 positives and 10 hard lexical negatives per query, and the documents of distractor queries. The other
queries become training pairs. Both sets are in BEIR's layout, which ``lsr-prod encode`` and ``lsr-prod evaluate`` read.
The files are checked for leaks before they are written. Rows that are no clicks are written to a quarantine with their
reason. The same log and seed give the same bytes, in any order of the rows.

Prints a table and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration (nothing was written).
"""

from collections.abc import Sequence

from lsr_prod.jobs.terminal.run import Job, run_job
from lsr_prod_contrib.click_sets.job import make_click_set

JOB = Job("click-set", __doc__, needs=("click_set",))


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, make_click_set, argv)
