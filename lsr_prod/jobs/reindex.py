"""The command ``reindex``: the nightly chain."""

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lsr_prod import errors, logs
from lsr_prod.cluster import ray_session, session
from lsr_prod.config import Deployment, EncodeSettings, IndexSettings
from lsr_prod.encoding import EncodeSummary, check_encode, encode_corpus
from lsr_prod.encoding.prepare import Work, open_encoder
from lsr_prod.evaluation import evaluate_index, systems
from lsr_prod.evaluation.evaluate import brief, check_evaluation
from lsr_prod.indexing import build, build_index, collect_garbage
from lsr_prod.jobs.encode import print_encoded
from lsr_prod.jobs.evaluate import print_comparisons, print_systems
from lsr_prod.jobs.index import add_force_options, gate_rows, print_gates
from lsr_prod.jobs.terminal import shell, tables
from lsr_prod.operations import nights, status, table_generations
from lsr_prod.operations.gates import Gatekeeper, check_gates
from lsr_prod.storage import Store, folders, publications

log = logs.get_log(__name__)

_NIGHTS = 400  # records that are kept, a year and more
_FIGURES = {
    "encode": ("rows_out", "quarantined", "waves", "waves_skipped"),
    "index": ("mode", "documents", "upserts", "deletes", "documents_rebuilt", "bytes_written", "publication"),
    "evaluate": ("queries", "documents"),
    "collect": ("publications", "objects", "bytes", "tables"),
}


def _run(chosen: Deployment, work: Work, gatekeeper: Gatekeeper, first: Store, table: Store) -> Mapping[str, Any]:
    index, options = _index(chosen), chosen.storage.options
    steps: dict[str, Mapping[str, Any]] = {}
    with ray_session(chosen.ray):
        steps["encode"] = _timed(lambda: _encode_once(chosen, work, gatekeeper).result())
        try:
            steps["index"] = _timed(lambda: build_index(chosen, gatekeeper).result())
        finally:
            print_gates(gatekeeper.reports)
    if chosen.evaluate is not None and index.publish:
        steps["evaluate"] = _timed(lambda: evaluate_index(chosen).result())
    if index.publish:
        steps["collect"] = _timed(lambda: _collect(index, Store(folders.absolute(index.output), options), first, table))
    return {f"{step}.{name}": value for step, found in steps.items() for name, value in found.items()}


def _encode_once(deployment: Deployment, work: Work, gatekeeper: Gatekeeper) -> EncodeSummary:
    """Encode; if a newer run takes over, wait for its end and check that nothing is left to do.

    The gatekeeper gets the source as the final attempt has pinned it.
    """
    while True:
        gatekeeper.files = work.listed
        try:
            return encode_corpus(deployment, checked=work)
        except errors.FencedError as error:
            log.warning("a newer run has taken over", extra={"fields": {"reason": str(error)}})
        status.wait_for_other_attempts(work.table)
        work = check_encode(deployment)


def _collect(index: IndexSettings, place: Store, first: Store, table: Store) -> dict[str, int]:
    age = index.keep_hours * 3600
    garbage = collect_garbage(place, keep=index.keep_publications, age_s=age)
    retired = table_generations.retire_tables(place, first, table, age_s=age)
    nights.delete_old_nights(place, keep=_NIGHTS)
    build.delete_old_builds(place, keep=_NIGHTS)
    return {
        "publications": garbage.publications,
        "objects": garbage.objects + retired.objects,
        "bytes": garbage.size + retired.size,
        "tables": retired.tables,
    }


def _encode(deployment: Deployment) -> EncodeSettings:
    assert deployment.encode is not None
    return deployment.encode


def _index(deployment: Deployment) -> IndexSettings:
    assert deployment.index is not None
    return deployment.index


def _number(index: Store) -> int | None:
    found = publications.find_current_publication(index)
    return None if found is None else found.number


def _timed(step: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    began = time.perf_counter()
    summary = step()
    return {"seconds": round(time.perf_counter() - began, 3), **summary}


def _print_steps(summary: Mapping[str, Any]) -> None:
    steps = {step: _figures(summary, step) for step in _FIGURES if f"{step}.seconds" in summary}
    print_encoded(steps["encode"])
    for step in ("index", "collect"):
        if step in steps:
            tables.print_table(step, shell.scalars(steps[step]))
    if "evaluate" in steps:
        print_systems(steps["evaluate"]["systems"], steps["evaluate"]["comparisons"])
        print_comparisons(steps["evaluate"]["comparisons"])
    tables.print_table("lsr-prod reindex", {step: _row(step, figures) for step, figures in steps.items()})


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
    session.check_temp_folder(deployment.ray)
    encode, index, evaluate = deployment.encode, deployment.index, deployment.evaluate
    assert encode is not None
    assert index is not None
    chain = [("index.table", index.table, encode.table), ("index.bundle", index.bundle, encode.bundle)]
    if evaluate is not None:
        chain.append(("evaluate.index", evaluate.index, index.output))
        check_evaluation(evaluate, deployment.storage.options)
        systems.chosen_systems(evaluate, has_text=bool(index.text_fields), has_words=index.bm25)
    for field, found, made in chain:
        if found != made:
            raise errors.ConfigError(field, f"{found!r} is not what the step before writes", f"set it to {made!r}")


def _brief(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary without the values per query of its evaluation."""
    figures = _figures(summary, "evaluate")
    short = {f"evaluate.{name}": value for name, value in brief(figures).items()} if figures else {}
    return {**{name: value for name, value in summary.items() if not name.startswith("evaluate.")}, **short}


@partial(
    shell.Job,
    "reindex",
    needs=("source", "encode", "index"),
    optional=("gates", "evaluate"),
    add_options=add_force_options,
    show=_print_steps,
    brief=_brief,
    pages=True,
)
def reindex(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    """Run the nightly chain: encode, index, compare with the current version, publish, evaluate, and delete old versions.

        lsr-prod reindex --config deployment.yaml [--force GATE --reason TEXT]

    Reads the sections ``source``, ``encode``, ``index`` and ``gates``, and ``evaluate`` if it is given. Every step skips
    what is already done: run twice, started twice at once, or resumed after an interruption, the job ends in the state of
    one clean run. Of two runs that encode at once, the newer one takes over, and the older one waits for it. Small changes
    build small shards (``index.max_delta``). Before a version is published, it answers canary and golden queries next to
    the current one. A version that a gate refuses is kept, but not published; ``--force`` can overrule a gate.

    With another bundle, all documents are encoded into a new table next to the one before it, and all shards are built from
    it; readers follow when the version has passed the gates. Until then the old table and version stay as they are, and
    until retention deletes them ``lsr-prod index rollback`` returns to them.

    Versions older than the newest ``index.keep_publications`` that are neither pinned nor read, tables that no version
    names, and leftovers of interrupted runs are deleted once they are older than ``index.keep_hours``.

    Prints tables of every step, measures per system if there is a section ``evaluate``, one row per step, and one line
    ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
    """
    check_gates(deployment, given.force, given.reason)
    _check(deployment)
    options = deployment.storage.options
    first = Store(folders.absolute(_encode(deployment).table), options)
    table = table_generations.table_for_bundle(first, open_encoder(_encode(deployment), options)[1].digest)
    chosen = table_generations.with_table(deployment, first, table)
    work = check_encode(chosen)
    table_generations.register_table(first, table)
    gatekeeper = Gatekeeper(chosen, given.force, given.reason)
    place = Store(folders.absolute(_index(chosen).output), options)
    figures = nights.recorded_night(
        place,
        lambda: _run(chosen, work, gatekeeper, first, table),
        published=lambda: _number(place),
        refused=lambda: tuple(result.gate for report in gatekeeper.reports[-1:] for result in report.refused),
    )
    return {**figures, "gates": gate_rows(gatekeeper.reports)}
