"""Measure a published index: quality, matched documents and latency, BM25 beside it.

    python jobs/evaluate.py --config deployment.yaml [--evaluate.thresholds 0 --evaluate.thresholds 0.4]

Reads the section ``evaluate``. Writes TREC run files if ``evaluate.runs`` names a folder. Ends with a table and one
line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.evaluation import evaluate_index
from lsr_prod.evaluation.report import print_systems
from lsr_prod.jobs.run import run_job


def work(deployment: Deployment) -> Mapping[str, Any]:
    """Evaluate, and show one row a system."""
    summary = evaluate_index(deployment)
    print_systems(summary["systems"])
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    return run_job(work, job="jobs/evaluate.py", description=__doc__, needs=("evaluate",), argv=argv)


if __name__ == "__main__":
    raise SystemExit(main())
