"""The encode job: check all inputs, then encode and commit wave by wave, each document exactly once."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment
from lsr_prod.corpus.read import Reader
from lsr_prod.encoding.actors.idle import report_idle_actors
from lsr_prod.encoding.cells.batches import ENCODER_REASONS
from lsr_prod.encoding.commit.committer import Committer, waves_done
from lsr_prod.encoding.commit.fence import take_epoch
from lsr_prod.encoding.commit.give_up import give_up_base
from lsr_prod.encoding.commit.markers import delete_markers
from lsr_prod.encoding.isolation.isolated import IsolatedEncoder
from lsr_prod.encoding.on_nodes import require_on_nodes
from lsr_prod.encoding.plans.increment import has_order_of
from lsr_prod.encoding.plans.saved import save_plan
from lsr_prod.encoding.plans.successors import link_successor
from lsr_prod.encoding.prepare import Work, prepare
from lsr_prod.encoding.probe import probe_scale
from lsr_prod.encoding.results import WaveCosts, WaveResult
from lsr_prod.encoding.returning import run_here
from lsr_prod.encoding.run_records import WaveRecorder, save_run
from lsr_prod.encoding.scale import settle_scale, with_scale
from lsr_prod.encoding.summary import EncodeSummary, Totals, document_count, table_bytes
from lsr_prod.encoding.table import check_first_plan, check_table, create_sparse_table
from lsr_prod.errors import QuarantineOverflowError
from lsr_prod.formats.table import TableProperties
from lsr_prod.logs import get_log
from lsr_prod.storage.counts import store_counts
from lsr_prod.tables import Table, open_table
from lsr_prod.tables.impact_scale import ImpactScale
from lsr_prod.tables.quarantine import create_quarantine

if TYPE_CHECKING:
    from lsr_prod.encoding.actors.places import PoolSize

log = get_log(__name__)

_FEW_CALLS = 2  # of 64 parts each: this process reads them before a local Ray has started


def encode_corpus(deployment: Deployment, *, abandon: str | None = None, checked: Work | None = None) -> EncodeSummary:
    """Encode the corpus of ``source`` into the sparse table of ``encode``.

    A run resumes an interrupted one. It does nothing if the table is complete, and if the corpus has changed since, it
    makes an increment that encodes only new documents. If files are listed in another order than when an
    interrupted run began, an increment follows the resumed plan.

    Args:
        deployment: sections ``source``, ``encode``, ``gates`` (the share of clipped weights), ``ray`` and ``storage``.
        abandon: first digits of the digest of the newest plan, to give it up although it has committed waves.
        checked: what ``check_encode`` returned just now, so that the source is not listed again.

    Returns:
        Counts, seconds and docs/s of this run, version and digest of the table.

    Raises:
        ConfigError: a setting is wrong; nothing was written.
        LineageError: another bundle made the table; nothing was written.
        QuarantineOverflowError: the bad share is above ``encode.max_bad_fraction``.
        SourceError: a file of the source is damaged, and ``source.on_damage`` is fail; or it has changed.
        FencedError: a newer attempt at the same plan has taken over.
        EncoderLostError: every attempt at a block or wave lost its actors or nodes.
        StorageError: the store failed.
    """
    with ExitStack() as session:
        work = checked or _prepare(deployment, abandon, session)
        session.enter_context(ray_session(deployment.ray))
        summary = _encode(work)
        was_finished = summary.waves_skipped == summary.waves
        if was_finished or work.listed is None or has_order_of(work.plan, work.listed):
            return summary
        log.info("files have another order than in the plan", extra={"fields": {"plan": work.plan.digest}})
        return _encode(_prepare(deployment, None, session))


def check_encode(deployment: Deployment) -> Work:
    """Run the checks of ``encode_corpus`` without writing anything.

    Returns:
        The plan and everything else that the job needs.

    Raises:
        ConfigError: a setting is wrong.
        LineageError: another bundle made the table.
    """
    with ExitStack() as session:
        return _prepare(deployment, None, session)


def _prepare(deployment: Deployment, abandon: str | None, session: ExitStack) -> Work:
    """Check the inputs; the sizes of a new plan follow from the encoders that the cluster has room for."""
    encode = deployment.encode
    assert encode is not None

    def on_workers(function: Callable[..., Any], shared: Any, items: Sequence[tuple[Any, ...]]) -> Iterable[Any]:
        if len(items) <= _FEW_CALLS:
            return run_here(function, shared, items)
        import ray

        from lsr_prod.cluster.tasks import run_tasks

        session.enter_context(ray_session(deployment.ray))
        held = ray.put(shared)
        calls = run_tasks(function, [(held, *item) for item in items], task="looking for rows that become documents")
        return (result for _, result in calls)

    if encode.actors is not None or not (deployment.ray.address or os.environ.get("RAY_ADDRESS")):
        return prepare(deployment, abandon=abandon, run=on_workers)

    def planned() -> int:
        from lsr_prod.encoding.actors.places import pool_size

        with ray_session(deployment.ray):
            return pool_size(encode).planned

    return prepare(deployment, abandon=abandon, actors=planned, run=on_workers)


def _encode(work: Work) -> EncodeSummary:
    from lsr_prod.encoding.actors.demand import wait_for_room
    from lsr_prod.encoding.actors.gpu import check_gpu_nodes
    from lsr_prod.encoding.actors.places import pool_size
    from lsr_prod.encoding.digest import table_digest_on_ray

    started, counted = time.monotonic(), store_counts()
    finished = work.found is not None and waves_done(_newest(work), work.plan.digest) >= work.plan.waves
    size = pool_size(work.encode) if finished else wait_for_room(work.encode)  # nothing to do needs no node
    actors = size.actors
    if size.gpus and not finished:
        check_gpu_nodes(work.encode.provider, size.nodes)
    fields = {"actors": size.actors, "threads": size.threads, "gpus": size.gpus, "nodes": len(set(size.nodes))}
    log.info("encoder pool", extra={"fields": fields})
    log.info("plan sizes", extra={"fields": work.plan.sizes()})
    require_on_nodes(work)
    save_plan(work.plan, work.table)
    if work.plan.base is not None:
        link_successor(work.table, work.plan, lambda plan: waves_done(_newest(work), plan))
    epoch = take_epoch(work.table, work.plan.digest, work.source.paths)
    properties = work.found or _create(work)
    create_quarantine(work.quarantine, work.encode.sink)
    give_up_base(work.plan, work.table, work.quarantine)
    committer = Committer(epoch, work.table, work.quarantine)
    skipped = waves_done(_newest(work), work.plan.digest)
    totals = Totals.before(work, _newest(work), skipped)
    if skipped < work.plan.waves:
        report_idle_actors(work.plan, size.planned)
        committer.fence()
        properties = settle_scale(committer, work.plan, work.encode, partial(_probe_on_worker, work))
        actors = _run_waves(work, size, properties, committer, totals, skipped, started)
        totals.save(work)
    seconds = time.monotonic() - started
    table = _newest(work)
    io = totals.io + (store_counts() - counted)
    summary = EncodeSummary(
        documents=document_count(table),
        rows_in=totals.rows_out + totals.quarantined,
        rows_out=totals.rows_out,
        quarantined=totals.quarantined,
        quarantined_by_reason=dict(sorted(totals.reasons.items())),
        unread_bytes=totals.unread_bytes,
        unread_share=totals.unread_bytes / max(work.plan.source_bytes, 1),
        encoded=totals.encoded,
        unchanged=totals.unchanged,
        deleted=totals.deleted,
        clipped=totals.clipped,
        clipped_share=totals.clipped / max(totals.weights, 1),
        max_clipped_share=work.max_clipped_share,
        reused_cells=totals.reused_cells,
        tokens=totals.counters.tokens,
        padding_share=totals.counters.padding_share,
        cut_documents=totals.counters.cut,
        waves=work.plan.waves,
        waves_skipped=skipped,
        actors=actors,
        threads_per_actor=size.threads,
        seconds=seconds,
        encode_seconds=totals.busy.span_s,
        busy_share=totals.busy.share(actors),
        source_bytes=work.plan.source_bytes,
        table_bytes=table_bytes(table),
        requests=sum(io.requests.values()),
        bytes_read=io.bytes_read,
        bytes_written=io.bytes_written,
        docs_per_s=totals.encoded / seconds,
        impact_step=properties.impact_step,
        impact_error=properties.impact_error,
        table=work.table.uri,
        quarantine=work.quarantine.uri,
        plan=work.plan.digest,
        base_plan=work.plan.base,
        bundle_digest=properties.bundle_digest,
        table_version=table.version,
        table_digest=table_digest_on_ray(table),
    )
    if skipped < work.plan.waves:
        save_run(work.table, work.plan.digest, epoch.number, summary.result())
    return summary


def _run_waves(
    work: Work,
    size: "PoolSize",
    properties: TableProperties,
    committer: Committer,
    totals: Totals,
    skipped: int,
    started: float,
) -> int:
    """Encode and commit the waves that are left; returns the highest number of encoders that the job had."""
    from lsr_prod.encoding.actors.actor import ModelSettings
    from lsr_prod.encoding.actors.places import current_places
    from lsr_prod.encoding.actors.pool import EncoderPool
    from lsr_prod.encoding.commit.on_workers import check_on_workers, merge_on_workers
    from lsr_prod.encoding.metrics import WaveMetrics
    from lsr_prod.encoding.node_tasks import NodeTasks
    from lsr_prod.encoding.pipeline import Pipeline
    from lsr_prod.encoding.progress import Progress
    from lsr_prod.encoding.reading import WaveReader
    from lsr_prod.encoding.waves import WaveOpener

    encode = work.encode
    metrics = WaveMetrics()
    gpu_provider = encode.provider if size.gpus else None
    model = ModelSettings(work.factory, encode.batch_timeout_s, encode.document_timeout_s, gpu_provider)
    with (
        EncoderPool(size, model, partial(current_places, size)) as pool,
        Progress(work.plan.wave_shares().tolist(), skipped, pool.activity) as progress,
    ):
        tasks = NodeTasks(pool.nodes, size.threads)
        committer = replace(committer, check=partial(check_on_workers, tasks), merge=partial(merge_on_workers, tasks))

        recorder = WaveRecorder(
            work.table,
            work.plan.digest,
            committer.epoch.number,
            started=started,
            encoders=lambda: pool.activity().ready,
        )

        def spend(wave: int, costs: WaveCosts) -> None:
            totals.add_costs(costs)
            recorder.spend(wave, costs)

        def commit(result: WaveResult) -> None:
            _check_overflow(work, result, totals)
            began = time.monotonic()
            committer.commit(result)
            seconds = time.monotonic() - began
            totals.add(result)
            _warn_of_clipping(work, result)
            metrics.committed(result.wave, dict(result.reasons), seconds)
            progress.committed(result.wave, totals.rows_out, totals.quarantined, seconds)
            recorder.committed(result, seconds)

        opener = WaveOpener(work, properties, WaveReader(work, tasks), size.planned)
        Pipeline(opener, pool, progress, commit, spend).run(skipped, work.plan.waves)
    return pool.peak or size.actors


def _check_overflow(work: Work, result: WaveResult, totals: Totals) -> None:
    try:
        totals.check_overflow(work, result)
    except QuarantineOverflowError:
        # Rows that the model failed on must be tried again by the next attempt.
        failed = {cell.cell for cell in result.cells if not ENCODER_REASONS.isdisjoint(cell.reasons)}
        delete_markers(work.table, work.plan.digest, result.wave, failed)
        raise


def _warn_of_clipping(work: Work, result: WaveResult) -> None:
    if work.max_clipped_share is not None and result.clipped_share > work.max_clipped_share:
        fields = {"wave": result.wave, "clipped": result.clipped, "weights": result.weights}
        share = {"share": round(result.clipped_share, 5), "limit": work.max_clipped_share}
        log.warning("weights clipped", extra={"fields": {**fields, **share}})


def _create(work: Work) -> TableProperties:
    """Choose the impact scale and create the table, or open it if another attempt was faster."""
    wanted = with_scale(work.wanted, _probe_on_worker(work, 0.0))
    table = create_sparse_table(work.table, work.encode.sink, wanted, work.plan.digest)
    check_first_plan(table, work.plan.digest)
    created = check_table(work.table, work.wanted, work.encode.sink)
    assert created is not None
    return created


def _probe_on_worker(work: Work, floor: float) -> ImpactScale:
    from lsr_prod.cluster.tasks import Needs, run_tasks

    needs = Needs(cpus=work.encode.threads_per_actor)
    ((_, scale),) = run_tasks(_probe, [(work, floor)], task="encoding the probe documents", needs=needs)
    return scale


def _probe(work: Work, floor: float) -> ImpactScale:
    encode, reader = work.encode, Reader(work.source, work.plan.buckets, work.table.options)
    # In a child process: Ray would retry a task whose process a document has crashed.
    with IsolatedEncoder(work.factory, timeout_s=encode.document_timeout_s) as encoder:
        return probe_scale(
            reader,
            work.plan,
            encoder,
            documents=encode.probe_documents,
            bits=encode.impact_bits,
            step=encode.impact_step,
            floor=floor,
        )


def _newest(work: Work) -> Table:
    table = open_table(work.table)
    assert table is not None
    return table
