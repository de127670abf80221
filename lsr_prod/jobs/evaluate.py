"""Measure a published index: quality, matched documents and latency, with BM25 as the baseline.

    lsr-prod evaluate --config deployment.yaml [--evaluate.thresholds 0 --evaluate.thresholds 0.4]

Reads the section ``evaluate``. Writes TREC run files if ``evaluate.runs`` names a folder.

Prints a table with one row per system, a table of sparsity and cost, and one line ``RESULT {json}``.
Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.evaluation import evaluate_index
from lsr_prod.jobs.terminal.run import Job, run_job, scalars
from lsr_prod.jobs.terminal.tables import print_columns, print_table

__all__ = ["JOB", "main", "print_systems"]

JOB = Job("evaluate", __doc__, needs=("evaluate",))

_LATENCIES = ("match_p50_ms", "match_p95_ms", "text_p50_ms", "text_p95_ms")


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, lambda deployment: evaluate_index(deployment).result(), argv, _print_evaluation)


def print_systems(systems: Sequence[Mapping[str, Any]]) -> None:
    """Print measures, matched documents and latencies, one row per system of ``Evaluation.result``."""
    measures = list(systems[0]["measures"]) if systems else []
    headings = ["system", *measures, "matched per query", *(name.replace("_", " ") for name in _LATENCIES)]
    rows = [
        [
            system["name"],
            *(float(system["measures"][measure]) for measure in measures),
            round(system["matched"]),
            *(float(system[name]) for name in _LATENCIES),
        ]
        for system in systems
    ]
    print_columns("quality and latency", headings, rows)


def _print_evaluation(summary: Mapping[str, Any]) -> None:
    print_systems(summary["systems"])
    print_table("lsr-prod evaluate", scalars(summary))
