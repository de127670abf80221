"""The nightly chain: encode what the plan still lacks, index it, publish it, delete what nobody names any more.

    python jobs/reindex.py --config deployment.yaml

Reads the sections ``source``, ``encode`` and ``index``, and ``evaluate`` if there is one. Every part skips what is
already there: run twice, started twice at once, or after a kill, it ends in the state of one clean run. Small changes
cost small shards (``index.max_delta``). Versions beyond the newest ``index.keep_publications``, and what killed runs
left behind, are deleted once they are older than ``index.keep_hours``. Ends with a table that has a row for every part,
a table of all figures, and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment
from lsr_prod.encoding import check_encode, encode_corpus
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation import evaluate_index
from lsr_prod.indexing import build_index, collect_garbage
from lsr_prod.jobs.run import print_table, run_job
from lsr_prod.storage import require_exists


def work(deployment: Deployment) -> Mapping[str, Any]:
    """Run the chain in one Ray session; keys of a part carry its name."""
    _check(deployment)
    check_encode(deployment)
    index = deployment.index
    assert index is not None
    parts: dict[str, Mapping[str, Any]] = {}
    with ray_session(deployment.ray):
        parts["encode"] = _timed(lambda: encode_corpus(deployment).to_json())
        parts["index"] = _timed(lambda: build_index(deployment).to_json())
    if index.publish:
        age = index.keep_hours * 3600
        parts["collect"] = _timed(
            lambda: collect_garbage(Path(index.output), keep=index.keep_publications, age_s=age).to_json()
        )
    if deployment.evaluate is not None:
        parts["evaluate"] = _timed(lambda: evaluate_index(deployment))
    print_table("parts", {part: _row(part, summary) for part, summary in parts.items()})
    return {f"{part}.{key}": value for part, summary in parts.items() for key, value in summary.items()}


def _timed(part: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    began = time.perf_counter()
    summary = part()
    return {"seconds": round(time.perf_counter() - began, 3), **summary}


def _row(part: str, summary: Mapping[str, Any]) -> str:
    """A part in one line: its seconds, and what it did."""
    shown = {
        "encode": ("rows_out", "waves", "waves_skipped"),
        "index": ("mode", "documents", "upserts", "deletes", "documents_rebuilt", "bytes_written", "publication"),
        "collect": ("publications", "objects", "bytes"),
        "evaluate": (),
    }[part]
    figures = [f"{name} {summary[name]:,}" if isinstance(summary[name], int) else summary[name] for name in shown]
    return ", ".join([f"{summary['seconds']:.1f} s", *figures])


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
