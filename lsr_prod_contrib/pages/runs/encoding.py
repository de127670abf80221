"""Runs of an encode job: committed waves, finished runs, quarantined rows and cost, from the records of the table."""

from collections import Counter
from dataclasses import asdict
from typing import Any, Protocol

from lsr_prod.encoding.results import Counts
from lsr_prod.encoding.run_records import RunRecord, WaveRecord, read_runs, read_waves
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.indexing.build import BuildRecord, read_builds
from lsr_prod.operations.gates.check import read_report
from lsr_prod.operations.status import PlanStatus, table_status
from lsr_prod.storage import Store

_RUN_FIGURES = (
    "seconds", "encode_seconds", "actors", "threads_per_actor", "encoded", "tokens", "docs_per_s", "waves_skipped",
    "rows_in", "quarantined", "requests", "bytes_read", "bytes_written",
)  # fmt: skip
_FIGURES = (
    "mode", "reason", "documents", "shards", "shards_reused", "upserts", "deletes", "tombstones", "documents_rebuilt",
    "bytes_per_doc", "bytes_written", "seconds", "seconds_impacts", "seconds_tantivy", "version", "publication",
)  # fmt: skip


class Cluster(Protocol):
    """Measured values of a run from which ``estimates`` computes costs."""

    @property
    def nodes(self) -> int:
        """Number of nodes that run encoder actors."""

    @property
    def price_per_node_hour(self) -> float:
        """Price of one node for one hour."""

    @property
    def currency(self) -> str:
        """Unit of all prices."""


def describe_encoding(table: Store, plan: str | None = None, cluster: Cluster | None = None) -> dict[str, Any]:
    """Return what is recorded of a plan of a table.

    Returns:
        ``table``, ``documents``, ``plan`` (``PlanStatus``), ``waves`` (``WaveRecord``, with ``idle_share`` and
        ``tokens_per_s``), ``runs`` (figures of ``EncodeSummary`` with ``idle_share`` and ``cost``), and ``reasons``:
        quarantined rows of these waves by reason.
    """
    status = table_status(table)
    chosen = _choose(status.plans, plan, table.uri)
    waves, runs = read_waves(table, chosen.plan), read_runs(table, chosen.plan)
    reasons = Counter(Counts.sum(waves).quarantined_by_reason)
    return {
        "table": table.uri,
        "version": status.version,
        "documents": status.documents,
        "plan": asdict(chosen),
        "plans": len(status.plans),
        "waves": [_wave(wave) for wave in waves],
        "runs": [_run(run, cluster) for run in runs],
        "reasons": dict(reasons.most_common()),
        "currency": None if cluster is None else cluster.currency,
    }


def encode_cost(seconds: float, cluster: Cluster) -> float:
    """Return the price of all nodes of a cluster for some seconds; requests and storage are not included."""
    return seconds / 3600 * cluster.nodes * cluster.price_per_node_hour


def _choose(plans: tuple[PlanStatus, ...], wanted: str | None, table: str) -> PlanStatus:
    chain = [plan for plan in plans if plan.state != "not started"] or list(plans)
    found = chain[-1:] if wanted is None else [p for p in plans if len(wanted) >= 8 and p.plan.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if wanted is None:
        raise ArtifactError(f"{table} has no plan; give the encode.table of a job that has started")
    raise ConfigError(
        "--plan",
        f"{'more than one plan' if found else 'no plan'} of {table} has the digest {wanted[:64]}",
        "give 8 or more digits of a digest that lsr-prod table status prints",
    )


def _wave(wave: WaveRecord) -> dict[str, Any]:
    spent = None if wave.began is None or wave.ended is None else wave.ended - wave.began
    return {
        **asdict(wave),
        "quarantined": wave.quarantined,
        "idle_share": wave.idle_share,
        "tokens_per_s": wave.tokens / spent if spent else None,
        "documents_per_s": wave.encoded / spent if spent else None,
    }


def _run(run: RunRecord, cluster: Cluster | None) -> dict[str, Any]:
    figures = {name: run.summary.get(name) for name in _RUN_FIGURES}
    busy, seconds = run.summary.get("busy_share"), run.summary.get("seconds")
    cores = (figures["actors"] or 0) * (figures["threads_per_actor"] or 0)
    return {
        "attempt": run.attempt,
        "finished_at": run.finished_at,
        **figures,
        "idle_share": None if busy is None else 1 - busy,
        "core_hours": None if seconds is None else seconds * cores / 3600,
        "cost": None if cluster is None or seconds is None else encode_cost(seconds, cluster),
    }


def describe_builds(index: Store, *, last: int = 100) -> dict[str, Any]:
    """Return the newest builds of an index, oldest first, and the results of the gates of the last one.

    Returns:
        ``index``, ``builds`` (figures of ``IndexSummary`` and ``finished_at``), ``shards`` of the last build, and
        ``gates``: results of its report, without gates that are off.
    """
    builds = read_builds(index, last=last)
    if not builds:
        raise ArtifactError(
            f"{index.uri} has no record of a build; give index.output of an index that this release has built"
        )
    return {
        "index": index.uri,
        "builds": [
            {"finished_at": build.finished_at, **{name: build.summary.get(name) for name in _FIGURES}}
            for build in builds
        ],
        "shards": [dict(shard) for shard in builds[-1].shards],
        "gates": _gates(index, builds[-1]),
    }


def _gates(index: Store, build: BuildRecord) -> list[dict[str, Any]]:
    if not build.report:
        return []
    try:
        results = read_report(index, build.report).results
    except ArtifactError:
        return []  # retention deletes reports with their publication
    names = ("gate", "verdict", "measured", "limit")
    return [
        {**{name: getattr(one, name) for name in names}, "finding": one.sentence}
        for one in results
        if one.verdict != "off"
    ]
