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
    encode, index, evaluate = deployment.encode, deployment.index, deployment.evaluate
    assert encode is not None
    assert index is not None
    chain = [("index.table", index.table, encode.table), ("index.bundle", index.bundle, encode.bundle)]
    if evaluate is not None:
        chain.append(("evaluate.index", evaluate.index, index.output))
        for field in ("queries", "qrels"):
            require_exists(f"evaluate.{field}", getattr(evaluate, field))
    for field, found, made in chain:
        if found != made:
            raise ConfigError(field, f"{found!r} is not what the part before makes", f"set it to {made!r}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    return run_job(work, job="jobs/reindex.py", description=__doc__, needs=("source", "encode", "index"), argv=argv)


if __name__ == "__main__":
    raise SystemExit(main())
