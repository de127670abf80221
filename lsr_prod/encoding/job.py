"""The encode job: check all inputs, then encode and commit wave by wave, each document exactly once."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import ray
from ray.util.metrics import Counter, Gauge, Histogram

from lsr_prod import errors, logs
from lsr_prod.cluster import ray_session
from lsr_prod.cluster.tasks import Needs, run_tasks
from lsr_prod.config import Deployment
from lsr_prod.corpus.read import Reader
from lsr_prod.encoding import node_tasks, pipeline, waves
from lsr_prod.encoding.actors.actor import ModelSettings, check_gpu_nodes
from lsr_prod.encoding.actors.places import PoolSize, current_places, pool_size, report_idle_actors, wait_for_room
from lsr_prod.encoding.actors.pool import EncoderPool
from lsr_prod.encoding.cells.cell import ENCODER_REASONS
from lsr_prod.encoding.commit import fence, markers
from lsr_prod.encoding.commit.committer import Committer, check_on_workers, merge_on_workers, waves_done
from lsr_prod.encoding.isolation.isolated import IsolatedEncoder
from lsr_prod.encoding.plans import increment, successors
from lsr_prod.encoding.prepare import Work, prepare, require_on_nodes, run_here
from lsr_prod.encoding.progress import Progress
from lsr_prod.encoding.results import BusyTime, Counts, WaveResult
from lsr_prod.encoding.run_records import (
    EncodeSummary,
    WaveRecorder,
    check_overflow,
    counts_before,
    save_counts,
    save_run,
)
from lsr_prod.encoding.scale import probe_scale, settle_scale, with_scale
from lsr_prod.encoding.tables import impact_scale, live_rows, load_table, quarantine_rows, sparse_table
from lsr_prod.storage.formats.table_format import TableProperties
from lsr_prod.storage.remote import StoreCounts, store_counts

log = logs.get_log(__name__)

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
        if was_finished or work.listed is None or increment.has_order_of(work.plan, work.listed):
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
        session.enter_context(ray_session(deployment.ray))
        held = ray.put(shared)
        calls = run_tasks(function, [(held, *item) for item in items], task="looking for rows that become documents")
        return (result for _, result in calls)

    if encode.actors is not None or not (deployment.ray.address or os.environ.get("RAY_ADDRESS")):
        return prepare(deployment, abandon=abandon, run=on_workers)

    def planned() -> int:
        with ray_session(deployment.ray):
            return pool_size(encode).planned

    return prepare(deployment, abandon=abandon, actors=planned, run=on_workers)


def _encode(work: Work) -> EncodeSummary:
    run = _begin(work)
    if run.skipped < work.plan.waves:
        _run_waves(run)
        save_counts(work, run.counts)
    summary = _summarize(run)
    if run.skipped < work.plan.waves:
        save_run(work.table, work.plan.digest, run.committer.epoch.number, summary.result())
    return summary


@dataclass(slots=True)
class _Run:
    """An attempt that may commit."""

    work: Work  # the checked job
    size: PoolSize  # of the pool of encoders
    committer: Committer  # commits under the epoch of this attempt
    properties: TableProperties  # of the sparse table; its impact scale is settled before the first wave
    counts: Counts  # of the waves that were committed; only the thread that commits adds to it
    skipped: int  # waves that were committed before
    started: float  # when it began, on the monotonic clock
    io: StoreCounts  # requests and bytes of this process before it began
    actors: int  # the highest number of encoders that it had
    spent: Counts = field(default_factory=Counts)  # work on waves, committed or not; another thread adds to it
    busy: BusyTime = field(default_factory=BusyTime)  # working time of the encoders in this run


def _wave_metrics() -> Callable[[WaveResult, float], None]:
    """Return a function that records a committed wave for the Prometheus endpoint of Ray."""
    wave = Gauge("lsr_prod_encode_wave", "committed waves")
    bad = Counter("lsr_prod_encode_quarantined", "quarantined rows", tag_keys=("reason",))
    commit = Histogram(
        "lsr_prod_encode_commit_seconds", "duration of the commit of a wave", boundaries=[0.1, 0.3, 1, 3, 10, 30]
    )

    def committed(result: WaveResult, seconds: float) -> None:
        wave.set(result.wave + 1)
        commit.observe(seconds)
        for reason, count in result.counts.quarantined_by_reason.items():
            bad.inc(count, tags={"reason": reason})

    return committed


def _begin(work: Work) -> _Run:
    """Take the epoch of the plan, and create the tables that do not exist."""
    started, io = time.monotonic(), store_counts()
    size = _pool_size(work)
    log.info("plan sizes", extra={"fields": work.plan.sizes()})
    require_on_nodes(work)
    successors.save_plan(work.plan, work.table)
    if work.plan.base is not None:
        successors.link_successor(work.table, work.plan, lambda plan: waves_done(load_table(work.table), plan))
    epoch = fence.take_epoch(work.table, work.plan.digest, work.source.paths)
    properties = work.found or _create(work)
    quarantine_rows.create_quarantine(work.quarantine)
    markers.give_up_base(work.plan, work.table, work.quarantine)
    committer = Committer(epoch, work.table, work.quarantine)
    if waves_done(load_table(work.table), work.plan.digest) < work.plan.waves:
        committer.fence()  # from here on, no earlier attempt can commit a wave
    table = load_table(work.table)
    skipped = waves_done(table, work.plan.digest)
    counts = counts_before(work, table, skipped)
    return _Run(work, size, committer, properties, counts, skipped, started, io, len(size.nodes))


def _pool_size(work: Work) -> PoolSize:
    """Return the sizes of the pool; wait for room for an encoder, unless the plan is finished."""
    finished = work.found is not None and waves_done(load_table(work.table), work.plan.digest) >= work.plan.waves
    size = pool_size(work.encode) if finished else wait_for_room(work.encode)  # nothing to do needs no node
    if size.needs.gpus and not finished:
        check_gpu_nodes(work.encode.provider, size.nodes)
    actors, nodes, needs = len(size.nodes), len(set(size.nodes)), size.needs
    fields = {"actors": actors, "threads": needs.cpus, "gpus": needs.gpus, "nodes": nodes}
    log.info("encoder pool", extra={"fields": fields})
    return size


def _run_waves(run: _Run) -> None:
    """Settle the impact scale, then encode and commit the waves that are left."""
    work, size, skipped = run.work, run.size, run.skipped
    encode, epoch = work.encode, run.committer.epoch
    report_idle_actors(work.plan, size.planned)
    run.properties = settle_scale(run.committer, work.plan, encode, partial(_probe_on_worker, work))
    record = _wave_metrics()
    gpu_provider = encode.provider if size.needs.gpus else None
    model = ModelSettings(work.factory, encode.batch_timeout_s, encode.document_timeout_s, gpu_provider)
    with (
        EncoderPool(size, model, partial(current_places, size)) as pool,
        Progress(work.plan.wave_shares().tolist(), skipped, pool.activity) as progress,
    ):
        tasks = node_tasks.NodeTasks(pool.nodes, encode.threads_per_actor)
        check, merge = partial(check_on_workers, tasks), partial(merge_on_workers, tasks)
        committer = replace(run.committer, check=check, merge=merge)
        recorder = WaveRecorder(
            work.table, work.plan.digest, epoch.number, started=run.started, encoders=lambda: pool.activity().ready
        )

        def spend(wave: int, spent: Counts, busy: BusyTime) -> None:
            run.spent += spent
            run.busy += busy
            recorder.spend(wave, spent, busy)

        def commit(result: WaveResult) -> None:
            _check_overflow(work, result, run.counts)
            began = time.monotonic()
            committer.commit(result)
            seconds = time.monotonic() - began
            run.counts += result.counts
            _warn_of_clipping(work, result)
            record(result, seconds)
            progress.committed(result.wave, run.counts.document_rows, run.counts.quarantined, seconds)
            recorder.committed(result, seconds)

        opener = waves.WaveOpener(work, run.properties, waves.WaveReader(work, tasks), size.planned)
        pipeline.Pipeline(opener, pool, progress, commit, spend).run(skipped, work.plan.waves)
    run.actors = pool.peak or len(size.nodes)


def _summarize(run: _Run) -> EncodeSummary:
    work, table = run.work, load_table(run.work.table)
    seconds = time.monotonic() - run.started
    counts = run.counts + run.spent + Counts.of_store(store_counts() - run.io)
    return EncodeSummary(
        **{**asdict(counts), "rows_out": counts.document_rows},
        documents=live_rows.total_live_rows(table.file_table()),
        max_clipped_share=work.max_clipped_share,
        waves=work.plan.waves,
        waves_skipped=run.skipped,
        actors=run.actors,
        threads_per_actor=work.encode.threads_per_actor,
        seconds=seconds,
        encode_seconds=run.busy.span_s,
        busy_share=run.busy.share(run.actors),
        source_bytes=work.plan.source_bytes,
        table_bytes=live_rows.total(table.file_table(), "size"),
        impact_step=run.properties.impact_step,
        impact_error=run.properties.impact_error,
        table=work.table.uri,
        quarantine=work.quarantine.uri,
        plan=work.plan.digest,
        base_plan=work.plan.base,
        bundle_digest=run.properties.bundle_digest,
        table_version=table.version,
        table_digest=pipeline.table_digest_on_ray(table),
    )


def _check_overflow(work: Work, result: WaveResult, before: Counts) -> None:
    try:
        check_overflow(work, before, result)
    except errors.QuarantineOverflowError:
        # Rows that the model failed on must be tried again by the next attempt.
        failed = {
            cell.cell for cell in result.cells if not ENCODER_REASONS.isdisjoint(cell.counts.quarantined_by_reason)
        }
        markers.delete_markers(work.table, work.plan.digest, result.wave, failed)
        raise


def _warn_of_clipping(work: Work, result: WaveResult) -> None:
    counts = result.counts
    if work.max_clipped_share is not None and counts.clipped_share > work.max_clipped_share:
        fields = {"wave": result.wave, "clipped": counts.clipped, "weights": counts.weights}
        share = {"share": round(counts.clipped_share, 5), "limit": work.max_clipped_share}
        log.warning("weights clipped", extra={"fields": {**fields, **share}})


def _create(work: Work) -> TableProperties:
    """Choose the impact scale and create the table, or open it if another attempt was faster."""
    wanted = with_scale(work.wanted, _probe_on_worker(work, 0.0))
    table = sparse_table.create_sparse_table(work.table, wanted, work.plan.digest)
    sparse_table.check_first_plan(table, work.plan.digest)
    created = sparse_table.check_table(work.table, work.wanted)
    assert created is not None
    return created


def _probe_on_worker(work: Work, floor: float) -> impact_scale.ImpactScale:
    needs = Needs(cpus=work.encode.threads_per_actor)
    ((_, scale),) = run_tasks(_probe, [(work, floor)], task="encoding the probe documents", needs=needs)
    return scale


def _probe(work: Work, floor: float) -> impact_scale.ImpactScale:
    encode, reader = work.encode, Reader(work.source, work.plan.buckets, work.table.options)
    # In a child process: Ray would retry a task whose process a document has crashed.
    with IsolatedEncoder(work.factory, timeout_s=encode.document_timeout_s) as encoder:
        return probe_scale(reader, work.plan, encoder, encode, floor)
