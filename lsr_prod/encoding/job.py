"""The encode job: check everything, then wave by wave until the table holds the corpus exactly once."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, EncodeSettings, SourceSettings
from lsr_prod.encoding.commit import Committer, WaveResult, waves_done
from lsr_prod.encoding.fence import take_epoch
from lsr_prod.encoding.plan import Plan, make_plan, save_plan
from lsr_prod.encoding.quarantine import PARTITION, QUARANTINE_SCHEMA, quarantine_folder, quarantined_by_reason
from lsr_prod.encoding.read import Reader
from lsr_prod.encoding.sources import resolve_source
from lsr_prod.encoding.table import (
    check_table,
    create_sparse_table,
    create_table,
    files_by_bucket,
    open_table,
    table_digest,
)
from lsr_prod.errors import ArtefactError, ConfigError, MissingExtraError, QuarantineOverflowError
from lsr_prod.formats.bundle import Bundle
from lsr_prod.formats.card import EncoderCard
from lsr_prod.formats.table import CORE_COLUMNS, TableProperties
from lsr_prod.storage import Store, is_remote

__all__ = ["check_encode", "encode_corpus"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is known once every input is checked and nothing is written yet."""

    source: SourceSettings
    encode: EncodeSettings
    bundle: Path
    table: Store
    quarantine: Store
    plan: Plan
    wanted: TableProperties
    found: TableProperties | None

    @property
    def reader(self) -> Reader:
        return Reader(self.plan.files, self.source, self.encode.buckets, self.table.options)


def encode_corpus(deployment: Deployment) -> Mapping[str, Any]:
    """Encode the corpus of ``source`` into the sparse table of ``encode``.

    A run that was killed is resumed by the next one; a run that was finished is found to be done.

    Args:
        deployment: sections ``source``, ``encode``, ``ray`` and ``storage``.

    Returns:
        A flat summary: counts over the whole table, seconds and docs/s of this run, version and digest of the table.

    Raises:
        ConfigError: a setting is wrong; nothing was written.
        LineageError: another bundle made the table; nothing was written.
        QuarantineOverflowError: too many bad rows.
        FencedError: a newer attempt at the same plan has taken over.
    """
    work = _prepare(deployment)
    with ray_session(deployment.ray):
        return _encode(work)


def check_encode(deployment: Deployment) -> None:
    """Everything that ``encode_corpus`` checks before it writes; for a chain that checks all its parts first.

    Raises:
        ConfigError: a setting is wrong.
        LineageError: another bundle made the table.
    """
    _prepare(deployment)


def _prepare(deployment: Deployment) -> _Work:
    source, encode, options = deployment.source, deployment.encode, deployment.storage.options
    assert source is not None
    assert encode is not None
    _check_fields(source)
    bundle_path = Path(encode.bundle).absolute()
    try:
        bundle = Bundle.load(bundle_path, verify=True)
        card = EncoderCard.load(bundle_path)
    except ArtefactError as error:
        raise ConfigError("encode.bundle", str(error), "give the folder that jobs/export.py wrote") from error
    _require_onnxruntime()
    if encode.store_k > bundle.top_k:
        raise ConfigError(
            "encode.store_k", f"{encode.store_k} is more than the bundle's top_k", f"give {bundle.top_k} or less"
        )
    table = Store(_absolute(encode.table), options)
    quarantine = Store(_absolute(encode.quarantine or f"{encode.table.rstrip('/')}_quarantine"), options)
    files = resolve_source(source, options)
    plan = make_plan(files, source, encode, bundle_digest=bundle.digest, options=options)
    wanted = TableProperties(
        bundle_digest=bundle.digest,
        vocabulary_sha256=card.vocabulary_sha256,
        impact_step=0.0,
        impact_bits=encode.impact_bits,
        store_k=encode.store_k,
        buckets=encode.buckets,
        stored_fields=tuple(source.stored_fields),
        vocabulary_size=card.vocabulary_size,
    )
    found = check_table(table, wanted, plan.digest)
    _check_quarantine(quarantine)
    return _Work(source, encode, bundle_path, table, quarantine, plan, wanted, found)


def _absolute(uri: str) -> str:
    return uri if is_remote(uri) else str(Path(uri).absolute())


def _check_fields(source: SourceSettings) -> None:
    for name in source.stored_fields:
        if name in CORE_COLUMNS or "," in name or source.stored_fields.count(name) > 1:
            raise ConfigError(
                "source.stored_fields",
                f"{name!r} cannot be a stored field",
                f"give each name once, without a comma, and none of {', '.join(CORE_COLUMNS)}",
            )


def _check_quarantine(store: Store) -> None:
    table = open_table(store)
    if table is None:
        if names := store.names():
            raise ConfigError(
                "encode.quarantine", f"{store.uri} holds {names[0]} and is no Delta table", "give a new folder"
            )
    elif list(table.metadata().partition_columns) != list(PARTITION):
        raise ConfigError("encode.quarantine", f"{store.uri} is another table", "give a new folder")


def _require_onnxruntime() -> None:
    try:
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "cpu") from error


def _encode(work: _Work) -> Mapping[str, Any]:
    from lsr_prod.encoding.waves import actor_count

    started = time.monotonic()
    actors = actor_count(work.encode)
    save_plan(work.plan, work.table)
    locations = [file.location for file in work.plan.files]
    epoch = take_epoch(work.table, work.plan.digest, locations)
    properties = work.found or _create(work)
    create_table(work.quarantine, QUARANTINE_SCHEMA, list(PARTITION), {})
    committer = Committer(epoch, work.table, work.quarantine)
    skipped = waves_done(_newest(work.table), work.plan.digest)
    reasons = quarantined_by_reason(work.quarantine, _newest(work.quarantine), work.plan.digest, skipped)
    rows_before = rows_out = _documents(work.table)
    clipped = 0
    if skipped < len(work.plan.waves):
        committer.fence()
    for wave in range(skipped, len(work.plan.waves)):
        result = _run_wave(work, wave, properties, actors)
        reasons.update(result.reasons)
        rows_out += result.rows_out
        clipped += result.clipped
        _check_overflow(work, wave, reasons, rows_out)
        committer.commit(result)
        fields = {"wave": wave + 1, "of": len(work.plan.waves), "documents": rows_out, "bad": reasons.total()}
        log.info("wave committed", extra={"fields": fields})
    seconds = time.monotonic() - started
    summary = {
        "documents": rows_out,
        "rows_in": rows_out + reasons.total(),
        "rows_out": rows_out,
        "quarantined": reasons.total(),
        "quarantined_by_reason": dict(sorted(reasons.items())),
        "waves": len(work.plan.waves),
        "waves_skipped": skipped,
        "actors": actors,
        "seconds": seconds,
        "docs_per_s": (rows_out - rows_before) / seconds,
        "impact_step": properties.impact_step,
        "clipped": clipped,
        "table": work.table.uri,
        "quarantine": work.quarantine.uri,
        "plan": work.plan.digest,
        "bundle_digest": properties.bundle_digest,
    }
    version = _newest(work.table).version()
    digest = table_digest(work.table.uri, work.table.options, version=version)
    return {**summary, "table_version": version, "table_digest": digest}


def _create(work: _Work) -> TableProperties:
    """Fix the impact scale on a worker and make the table; a table that another attempt made first is taken over."""
    import ray

    from lsr_prod.encoding.probe import probe_step

    encode = work.encode
    probe = partial(
        probe_step,
        work.reader,
        [piece for wave in work.plan.waves for piece in wave],
        work.bundle,
        documents=encode.probe_documents,
        store_k=encode.store_k,
        bits=encode.impact_bits,
        batch_tokens=encode.batch_tokens,
        threads=encode.threads_per_actor,
    )
    step = ray.get(ray.remote(_call).options(num_cpus=encode.threads_per_actor).remote(probe))
    create_sparse_table(work.table, replace(work.wanted, impact_step=step), work.plan.digest)
    made = check_table(work.table, work.wanted, work.plan.digest)
    assert made is not None
    return made


def _call(function: Callable[[], float]) -> float:
    return function()


def _run_wave(work: _Work, wave: int, properties: TableProperties, actors: int) -> WaveResult:
    from lsr_prod.encoding.actor import WaveTask
    from lsr_prod.encoding.waves import run_wave

    task = WaveTask(
        plan=work.plan.digest,
        wave=wave,
        bundle=str(work.bundle),
        table=work.table,
        quarantine=work.quarantine,
        properties=properties,
        committed=files_by_bucket(_newest(work.table)),
        locations=[file.location for file in work.plan.files],
        batch_tokens=work.encode.batch_tokens,
        threads=work.encode.threads_per_actor,
    )
    return run_wave(work.plan.waves[wave], work.reader, task, actors)


def _check_overflow(work: _Work, wave: int, reasons: Counter[str], rows_out: int) -> None:
    bad, rows = reasons.total(), reasons.total() + rows_out
    if bad <= work.encode.max_bad_fraction * rows:
        return
    top = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common(3))
    raise QuarantineOverflowError(
        f"{bad} of {rows} rows are bad ({top}), encode.max_bad_fraction is {work.encode.max_bad_fraction}; wave {wave} "
        f"was not committed; see {work.quarantine.uri}/{quarantine_folder(work.plan.digest, wave)}, then mend the "
        "source or raise the fraction"
    )


def _newest(store: Store) -> DeltaTable:
    return DeltaTable(store.location, storage_options=store.delta_options)


def _documents(store: Store) -> int:
    counts = pa.table(_newest(store).get_add_actions(flatten=True))["num_records"].to_pylist()
    return sum(counts)
