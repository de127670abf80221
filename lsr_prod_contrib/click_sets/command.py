"""The command ``click-set``."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.jobs.terminal.shell import Job
from lsr_prod_contrib.click_sets.job import make_click_set


@partial(Job, "click-set", needs=("click_set",))
def click_set(deployment: Deployment) -> Mapping[str, Any]:
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
    return make_click_set(deployment)
