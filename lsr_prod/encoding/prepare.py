"""Checks of the encode job before it writes anything: settings, bundle, source, tables, plan."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import pyarrow as pa

from lsr_prod.config import Deployment, EncodeSettings, SourceSettings
from lsr_prod.corpus.filelist import iterate_files, list_files
from lsr_prod.corpus.sources import resolve_source
from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.encoding.passages import check_lengths, document_factory
from lsr_prod.encoding.pinned_bundle import PinnedBundle
from lsr_prod.encoding.plans.increment import FileChanges, prepare_plan
from lsr_prod.encoding.plans.plan import Plan
from lsr_prod.encoding.returning import Run, find_returning_files, run_here
from lsr_prod.encoding.table import PLAN_PROPERTY, check_table
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.formats.bundle import Bundle, read_vocabulary
from lsr_prod.formats.card import EncoderCard
from lsr_prod.formats.table import CORE_COLUMNS, TableProperties
from lsr_prod.inference.session import load_onnxruntime
from lsr_prod.storage import Store
from lsr_prod.storage.draft_names import is_draft
from lsr_prod.storage.folders import absolute, open_bundle
from lsr_prod.tables import Table, open_table
from lsr_prod.tables.quarantine import PARTITION


@dataclass(frozen=True, slots=True)
class Work:
    """The checked job, before anything is written.

    Attributes:
        source: the section ``source``.
        encode: the section ``encode``.
        factory: opens the encoder.
        table: the sparse table's folder.
        quarantine: the quarantine table's folder.
        plan: the plan of this run.
        wanted: properties of a new table, without its impact scale.
        found: properties of the existing table, or None.
        actors: encoders that sizes of a new plan were chosen for.
        max_clipped_share: share of clipped weights above which a wave is reported; None: never.
        listed: files of the source, as this run found and pinned them.
    """

    source: SourceSettings
    encode: EncodeSettings
    factory: EncoderFactory
    table: Store
    quarantine: Store
    plan: Plan
    wanted: TableProperties
    found: TableProperties | None
    actors: int = 1
    max_clipped_share: float | None = None
    listed: pa.Table | None = field(default=None, repr=False, compare=False)


def prepare(
    deployment: Deployment,
    *,
    abandon: str | None = None,
    actors: Callable[[], int] | None = None,
    run: Run = run_here,
) -> Work:
    """Check every input of the job."""
    source, encode, options = deployment.source, deployment.encode, deployment.storage.options
    assert source is not None
    assert encode is not None
    _check_fields(source)
    folder, bundle, card = open_encoder(encode, options)
    load_onnxruntime()
    if encode.store_k > bundle.top_k:
        raise ConfigError(
            "encode.store_k",
            f"{encode.store_k} is more than the {bundle.top_k} terms of the bundle",
            f"set {bundle.top_k} or less",
        )
    check_lengths(folder, encode)
    table = Store(absolute(encode.table), options)
    quarantine = Store(absolute(encode.quarantine or f"{encode.table.rstrip('/')}_quarantine"), options)
    wanted = TableProperties(
        bundle_digest=bundle.digest,
        vocabulary_sha256=card.vocabulary_sha256,
        vocabulary_size=len(read_vocabulary(folder)),
        impact_step=0.0,
        impact_bits=encode.impact_bits,
        store_k=encode.store_k,
        buckets=encode.buckets or 0,
        stored_fields=tuple(source.stored_fields),
    )
    found = check_table(table, wanted)
    _check_quarantine(quarantine)
    given = encode.actors or encode.max_actors or max((os.cpu_count() or 1) // encode.threads_per_actor, 1)
    counted = cache(actors or (lambda: given))
    returning = partial(find_returning_files, quarantine=quarantine, rule=encode.on_duplicate, run=run)
    listed = list_files(resolve_source(source, options))
    plan = _plan(listed, source, encode, bundle.digest, table, found, abandon, counted, returning)
    pinned = PinnedBundle(absolute(encode.bundle), bundle.digest, options)
    factory = document_factory(pinned, encode, threads=encode.threads_per_actor, provider=encode.provider)
    wanted = replace(wanted, buckets=plan.buckets)
    limit = deployment.gates.max_clipped_share
    return Work(source, encode, factory, table, quarantine, plan, wanted, found, counted(), limit, listed)


def open_encoder(encode: EncodeSettings, options: dict[str, str]) -> tuple[Path, Bundle, EncoderCard]:
    """Return the folder, the manifest and the encoder card of ``encode.bundle``, every file verified."""
    try:
        folder, bundle = open_bundle(encode.bundle, options)
        return folder, bundle, EncoderCard.load(folder)
    except ArtifactError as error:
        raise ConfigError("encode.bundle", str(error), "give the folder or URI that lsr-prod export wrote") from error


def _plan(
    listed: pa.Table,
    source: SourceSettings,
    encode: EncodeSettings,
    bundle: str,
    table: Store,
    found: TableProperties | None,
    abandon: str | None,
    actors: Callable[[], int],
    returning: Callable[[Table, FileChanges], frozenset[int]],
) -> Plan:
    snapshot = open_table(table) if found else None
    return prepare_plan(
        (file for _, file in iterate_files(listed)),
        source,
        encode,
        bundle_digest=bundle,
        options=table.options,
        table=table,
        root=None if snapshot is None else snapshot.properties[PLAN_PROPERTY],
        waves_done=lambda plan: 0 if snapshot is None else waves_done(snapshot, plan),
        abandon=abandon,
        actors=actors,
        returning=lambda changes: returning(snapshot, changes) if snapshot else frozenset(),
    )


def _check_fields(source: SourceSettings) -> None:
    for name in source.stored_fields:
        if name in CORE_COLUMNS or "," in name or source.stored_fields.count(name) > 1:
            raise ConfigError(
                "source.stored_fields",
                f"{name!r} cannot be a stored field",
                f"give each name once, without commas, and not {', '.join(CORE_COLUMNS)}",
            )


def _check_quarantine(store: Store) -> None:
    table = open_table(store)
    if table is None:
        if names := [name for name in store.names() if not is_draft(name)]:
            raise ConfigError(
                "encode.quarantine", f"{store.uri} contains {names[0]} and is not a table", "give a new folder"
            )
    elif table.partition_by != PARTITION:
        raise ConfigError("encode.quarantine", f"{store.uri} is not a quarantine table", "give a new folder")
