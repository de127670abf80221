"""The nightly chain: encode what the plan still lacks, index it, publish it.

    python jobs/reindex.py --config deployment.yaml

Reads the sections ``source``, ``encode`` and ``index``, and ``evaluate`` if there is one. Every part skips what is
already there: run twice, or after a kill, it ends in the state of one clean run. Ends with a table and one line
``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.cli import run_job
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment
from lsr_prod.encoding import check_encode, encode_corpus
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation import evaluate_index
from lsr_prod.indexing import build_index
from lsr_prod.storage import require_exists


def work(deployment: Deployment) -> Mapping[str, Any]:
    """Run the chain in one Ray session; keys of a part carry its name."""
    _check(deployment)
    check_encode(deployment)
    with ray_session(deployment.ray):
        parts = {"encode": encode_corpus(deployment), "index": build_index(deployment)}
    if deployment.evaluate is not None:
        parts["evaluate"] = evaluate_index(deployment)
    return {f"{part}.{key}": value for part, summary in parts.items() for key, value in summary.items()}


def _check(deployment: Deployment) -> None:
    assert deployment.encode is not None
    assert deployment.index is not None
    for field in ("table", "bundle"):
        expected, found = getattr(deployment.encode, field), getattr(deployment.index, field)
        if expected != found:
            raise ConfigError(
                f"index.{field}", f"{found!r} is not what encode.{field} names", f"set it to {expected!r}"
            )
    evaluate = deployment.evaluate
    if evaluate is not None:
        require_exists("evaluate.queries", evaluate.queries)
        require_exists("evaluate.qrels", evaluate.qrels)
    if evaluate is not None and evaluate.index != deployment.index.output:
        raise ConfigError(
            "evaluate.index",
            f"{evaluate.index!r} is not what index.output names",
            f"set it to {deployment.index.output!r}",
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    return run_job(work, job="jobs/reindex.py", description=__doc__, needs=("source", "encode", "index"), argv=argv)


if __name__ == "__main__":
    raise SystemExit(main())
