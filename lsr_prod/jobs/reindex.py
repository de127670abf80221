"""Run the nightly chain: encode what has changed, index it, publish it, and delete what is no longer referenced.

    lsr-prod reindex --config deployment.yaml [--force GATE --reason TEXT]

Reads the sections ``source``, ``encode``, ``index`` and ``gates``, and ``evaluate`` if it is given. Every step skips
what is already done: run twice, started twice at once, or resumed after an interruption, the job ends in the state of
one clean run. Small changes build small shards (``index.max_delta``). A version that a gate refuses is kept, but not
published; ``--force`` overrules a gate. Versions older than the newest ``index.keep_publications``, and leftovers of
interrupted runs, are deleted once they are older than ``index.keep_hours``.

Prints tables of every step, measures per system if there is a section ``evaluate``, one row per step, and one line
``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment
from lsr_prod.encoding import check_encode, encode_corpus
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation import evaluate_index
from lsr_prod.evaluation.evaluate import check_evaluation
from lsr_prod.indexing import build_index, collect_garbage
from lsr_prod.jobs.encode import print_encoded
from lsr_prod.jobs.evaluate import print_systems
from lsr_prod.jobs.terminal.gates import force_options, gate_rows, print_gates
from lsr_prod.jobs.terminal.run import Job, run_job, scalars
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.operations.gates import Gatekeeper
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute

__all__ = ["JOB", "main"]

JOB = Job(
    "reindex",
    __doc__,
    needs=("source", "encode", "index"),
    optional=("gates", "evaluate"),
    options=force_options("reindex"),
)

_FIGURES = {
    "encode": ("rows_out", "quarantined", "waves", "waves_skipped"),
    "index": ("mode", "documents", "upserts", "deletes", "documents_rebuilt", "bytes_written", "publication"),
    "collect": ("publications", "objects", "bytes"),
    "evaluate": ("queries", "documents"),
}


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, _reindex, argv, _print_steps)


def _reindex(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    """Run the chain in one Ray session; returns the figures of every step as ``<step>.<figure>``."""
    gatekeeper = Gatekeeper(deployment, given.force, given.reason)
    _check(deployment)
    work = check_encode(deployment)
    index = deployment.index
    assert index is not None
    steps: dict[str, Mapping[str, Any]] = {}
    with ray_session(deployment.ray):
        steps["encode"] = _timed(lambda: encode_corpus(deployment, checked=work).result())
        try:
            steps["index"] = _timed(lambda: build_index(deployment, gatekeeper).result())
        finally:
            print_gates(gatekeeper.reports)
    if index.publish:
        age, place = index.keep_hours * 3600, Store(absolute(index.output), deployment.storage.options)
        steps["collect"] = _timed(lambda: collect_garbage(place, keep=index.keep_publications, age_s=age).result())
    if deployment.evaluate is not None:
        steps["evaluate"] = _timed(lambda: evaluate_index(deployment).result())
    figures = {f"{step}.{name}": value for step, found in steps.items() for name, value in found.items()}
    return {**figures, "gates": gate_rows(gatekeeper.reports)}


def _timed(step: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    began = time.perf_counter()
    summary = step()
    return {"seconds": round(time.perf_counter() - began, 3), **summary}


def _print_steps(summary: Mapping[str, Any]) -> None:
    steps = {step: _figures(summary, step) for step in _FIGURES if f"{step}.seconds" in summary}
    print_encoded(steps["encode"])
    for step in ("index", "collect"):
        if step in steps:
            print_table(step, scalars(steps[step]))
    if "evaluate" in steps:
        print_systems(steps["evaluate"]["systems"])
    print_table("lsr-prod reindex", {step: _row(step, figures) for step, figures in steps.items()})


def _figures(summary: Mapping[str, Any], step: str) -> dict[str, Any]:
    prefix = f"{step}."
    return {name.removeprefix(prefix): value for name, value in summary.items() if name.startswith(prefix)}


def _row(step: str, figures: Mapping[str, Any]) -> str:
    """Return the duration and the main figures of a step in one line."""
    shown = [
        f"{name.replace('_', ' ')} {figures[name]:,}" if isinstance(figures[name], int) else str(figures[name])
        for name in _FIGURES[step]
    ]
    return ", ".join([f"{figures['seconds']:.1f} s", *shown])


def _check(deployment: Deployment) -> None:
    encode, index, evaluate = deployment.encode, deployment.index, deployment.evaluate
    assert encode is not None
    assert index is not None
    chain = [("index.table", index.table, encode.table), ("index.bundle", index.bundle, encode.bundle)]
    if evaluate is not None:
        chain.append(("evaluate.index", evaluate.index, index.output))
        check_evaluation(evaluate, deployment.storage.options)
    for field, found, made in chain:
        if found != made:
            raise ConfigError(field, f"{found!r} is not what the step before writes", f"set it to {made!r}")
