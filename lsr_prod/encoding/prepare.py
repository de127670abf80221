"""Checks of the encode job before it writes anything: settings, bundle, source, tables, plan.

``find_returning_files`` finds files that an increment reads again, because a quarantined duplicate of theirs becomes
the document of its id.

That happens when the file of the document was removed or changed, and when the files are listed in another order. Files
without such a row are not read again.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.cluster.workers import has_several_nodes, require_files, require_shared_folders
from lsr_prod.config import Deployment, EncodeSettings, SourceSettings, section
from lsr_prod.corpus import filelist, listing, read, source_rows
from lsr_prod.corpus.field_types import check_columns, field_types
from lsr_prod.encoding import encoder, passages
from lsr_prod.encoding.cells import cell, known_rows
from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.plans import encode_plan, increment
from lsr_prod.encoding.tables import (
    Table,
    TableFile,
    live_rows,
    open_table,
    quarantine_rows,
    read_all_rows,
    sparse_table,
)
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.inference.session import load_onnxruntime
from lsr_prod.storage import Store, folders, is_remote
from lsr_prod.storage.formats.bundle_format import Bundle, EncoderCard, read_vocabulary
from lsr_prod.storage.formats.table_format import CORE_COLUMNS, TableProperties, is_field_name

Result = TypeVar("Result")
Run = Callable[[Callable[..., Any], Any, Sequence[tuple[Any, ...]]], Iterable[Any]]
"""Calls a function with a shared argument and with each tuple of further arguments, and returns the results."""
_GROUP = 64  # parts per call
_BATCH_ROWS = 65536
_OWNERS = ["doc_id", "source_file"]
_BAD = pa.schema([("reason", pa.large_string()), ("doc_id", pa.large_string()), ("source_file", pa.int64())])


@dataclass(frozen=True, slots=True)
class _Duplicates:
    """Quarantined duplicates of kept files."""

    rows: pa.Table  # doc_id (large_string) and duplicate (int64, key of its file), each pair once
    rule: known_rows.Rule  # ``encode.on_duplicate``
    changes: increment.FileChanges  # of the list of files


def run_here(function: Callable[..., Result], shared: Any, items: Sequence[tuple[Any, ...]]) -> Iterator[Result]:
    """Run the calls in this process, one after the other."""
    return (function(shared, *item) for item in items)


def find_returning_files(
    table: Table, changes: increment.FileChanges, *, quarantine: Store, rule: known_rows.Rule, run: Run = run_here
) -> frozenset[int]:
    """Return the keys of kept files with a quarantined duplicate that becomes a document.

    The driver holds the ids of the quarantined duplicates of kept files, about 100 bytes each. If there is one, the
    columns of ids and files of the whole table are read.
    """
    snapshot = open_table(quarantine)
    if snapshot is None or rule == "error":
        return frozenset()
    bad = pa.concat_tables([_BAD.empty_table(), *run(_bad_rows, quarantine, _groups(snapshot.files()))])
    are_duplicates = pc.equal(bad["reason"], quarantine_rows.DUPLICATE)
    known = bad.filter(pc.and_(are_duplicates, pc.is_in(bad["source_file"], value_set=changes.kept)))
    rows = known.select(_OWNERS).rename_columns(["doc_id", "duplicate"]).group_by(["doc_id", "duplicate"]).aggregate([])
    if not rows.num_rows:
        return frozenset()
    duplicates = _Duplicates(rows, rule, changes)
    # A row that the model failed on is no document, but the other rows of its id were quarantined too.
    found = _taking_over(duplicates, bad.filter(pc.invert(are_duplicates)).select(_OWNERS))
    calls = [(table.store, files) for (files,) in _groups(table.files())]
    return found.union(*run(_taking_over_from, duplicates, calls))


def _bad_rows(quarantine: Store, files: Sequence[TableFile]) -> pa.Table:
    """Return duplicates, and rows that the model failed on (``_BAD``)."""
    found = [_BAD.empty_table()]
    reasons = pa.array([quarantine_rows.DUPLICATE, *sorted(cell.ENCODER_REASONS)], pa.large_string())
    for file in files:
        rows = read_all_rows(quarantine, file.path, _BAD)
        found.append(rows.filter(pc.and_(pc.is_in(rows["reason"], value_set=reasons), rows["doc_id"].is_valid())))
    return pa.concat_tables(found)


def _taking_over_from(duplicates: _Duplicates, store: Store, files: Sequence[TableFile]) -> frozenset[int]:
    """Return the files with a duplicate that takes the place of a document of some parts."""
    found: frozenset[int] = frozenset()
    for file in files:
        for batch in live_rows.live_batches(store, file, _OWNERS, _BATCH_ROWS):
            found |= _taking_over(duplicates, pa.Table.from_batches([batch]).cast(_BAD.remove(0)))
    return found


def _taking_over(duplicates: _Duplicates, owners: pa.Table) -> frozenset[int]:
    """Return the files with a duplicate that takes the place of some rows."""
    changes, order = duplicates.changes, known_rows.SourceOrder(duplicates.rule, duplicates.changes.present)
    if not changes.reordered:
        owners = owners.filter(pc.is_in(owners["source_file"], value_set=changes.removed))
    owners = owners.filter(pc.is_in(owners["doc_id"], value_set=duplicates.rows["doc_id"].combine_chunks()))
    pairs = owners.join(duplicates.rows, "doc_id", join_type="inner")
    leave = pc.is_in(pairs["source_file"], value_set=changes.removed)
    stay = pc.and_not(pc.is_in(pairs["source_file"], value_set=changes.present), leave)
    found = {*pairs["duplicate"].filter(leave).to_pylist()}
    left = pairs.filter(stay).combine_chunks()
    wins = order.takes_over(*(left[name].combine_chunks() for name in ("duplicate", "source_file")))
    return frozenset(found | {*left["duplicate"].filter(wins).to_pylist()})


def _groups(files: Sequence[TableFile]) -> list[tuple[Sequence[TableFile]]]:
    return [(files[start : start + _GROUP],) for start in range(0, len(files), _GROUP)]


@dataclass(frozen=True, slots=True)
class Work:
    """The checked job, before anything is written."""

    source: SourceSettings  # the section ``source``
    encode: EncodeSettings  # the section ``encode``
    factory: encoder.EncoderFactory  # opens the encoder
    table: Store  # the sparse table's folder
    quarantine: Store  # the quarantine table's folder
    plan: encode_plan.Plan  # the plan of this run
    wanted: TableProperties  # properties of a new table, without its impact scale
    found: TableProperties | None  # properties of the existing table, or None
    actors: int = 1  # encoders that sizes of a new plan were chosen for
    max_clipped_share: float | None = None  # share of clipped weights above which a wave is reported; None: never
    # files of the source, as this run found and pinned them
    listed: pa.Table | None = field(default=None, repr=False, compare=False)


def prepare(
    deployment: Deployment, *, abandon: str | None = None, actors: Callable[[], int] | None = None, run: Run = run_here
) -> Work:
    """Check every input of the job."""
    source, encode, options = deployment.source, deployment.encode, deployment.storage.options
    assert source is not None
    assert encode is not None
    factory, wanted = prepare_encoder(source, encode, options)
    table = Store(folders.absolute(encode.table), options)
    quarantine = Store(folders.absolute(section.quarantine_uri(encode.quarantine, encode.table)), options)
    found = sparse_table.check_table(table, wanted)
    check_quarantine(quarantine)
    given = encode.actors or encode.max_actors or max((os.cpu_count() or 1) // encode.threads_per_actor, 1)
    counted = cache(actors or (lambda: given))
    listed = filelist.list_files(listing.resolve_source(source, options))
    snapshot = open_table(table) if found else None
    known = None if found is None else {**dict.fromkeys(found.stored_fields, "string"), **found.stored_types}
    types = field_types(source, (file for _, file in filelist.iterate_files(listed)), options, known)
    source = source.model_copy(update={"types": types})
    wanted = replace(wanted, stored_types={name: source_rows.table_type(kind) for name, kind in types.items()})

    def returning(changes: increment.FileChanges) -> frozenset[int]:
        if snapshot is None:
            return frozenset()
        return find_returning_files(snapshot, changes, quarantine=quarantine, rule=encode.on_duplicate, run=run)

    plan = increment.prepare_plan(
        (file for _, file in filelist.iterate_files(listed)),
        encode_plan.PlanInputs(source, encode, wanted.bundle_digest, options, counted),
        table=table,
        root=None if snapshot is None else snapshot.properties[sparse_table.PLAN_PROPERTY],
        waves_done=lambda plan: 0 if snapshot is None else waves_done(snapshot, plan),
        abandon=abandon,
        returning=returning,
    )
    if known is None:
        check_columns(source, listed, options)
    wanted = replace(wanted, buckets=plan.buckets)
    limit = deployment.gates.max_clipped_share
    return Work(source, encode, factory, table, quarantine, plan, wanted, found, counted(), limit, listed)


def prepare_encoder(
    source: SourceSettings, encode: EncodeSettings, options: dict[str, str]
) -> tuple[encoder.EncoderFactory, TableProperties]:
    """Check the bundle against the settings.

    Returns:
        A factory of the encoder, and the properties of a new table, without impact scale and types.
    """
    _check_fields(source)
    folder, bundle, card = open_encoder(encode, options)
    load_onnxruntime()
    if encode.store_k > bundle.top_k:
        problem = f"{encode.store_k} is more than the {bundle.top_k} terms of the bundle"
        raise ConfigError("encode.store_k", problem, f"set {bundle.top_k} or less")
    passages.check_lengths(folder, encode)
    pinned = passages.PinnedBundle(folders.absolute(encode.bundle), bundle.digest, options)
    factory = passages.document_factory(pinned, encode, threads=encode.threads_per_actor, provider=encode.provider)
    properties = TableProperties(
        bundle_digest=bundle.digest,
        vocabulary_sha256=card.vocabulary_sha256,
        vocabulary_size=len(read_vocabulary(folder)),
        impact_step=0.0,
        impact_bits=encode.impact_bits,
        store_k=encode.store_k,
        buckets=encode.buckets or 0,
        stored_fields=tuple(source.stored_fields),
    )
    return factory, properties


def open_encoder(encode: EncodeSettings, options: dict[str, str]) -> tuple[Path, Bundle, EncoderCard]:
    """Return the folder, the manifest and the encoder card of ``encode.bundle``, every file verified."""
    try:
        folder, bundle = folders.open_bundle(encode.bundle, options)
        return folder, bundle, EncoderCard.load(folder)
    except ArtifactError as error:
        raise ConfigError("encode.bundle", str(error), "give the folder or URI that lsr-prod export wrote") from error


def _check_fields(source: SourceSettings) -> None:
    for name in source.stored_fields:
        if not is_field_name(name) or source.stored_fields.count(name) > 1:
            remedy = f"give each name once, without commas, and not {', '.join(CORE_COLUMNS)}"
            raise ConfigError("source.stored_fields", f"{name!r} cannot be a stored field", remedy)


def check_quarantine(store: Store) -> None:
    """Refuse a folder that is neither new nor a quarantine table."""
    table = open_table(store)
    if table is None:
        sparse_table.require_new_folder("encode.quarantine", store)
    elif table.partition_by != quarantine_rows.PARTITION:
        raise ConfigError("encode.quarantine", f"{store.uri} is not a quarantine table", "give a new folder")


def require_on_nodes(work: Work) -> None:
    """Refuse a local source, bundle or table that some node does not see."""
    if not has_several_nodes():
        return
    plan = work.plan
    local = not all(map(is_remote, plan.files["uri"].unique().to_pylist()))
    table = open_table(work.table) if local else None
    if local and (table is None or waves_done(table, plan.digest) < plan.waves):
        read.require_source_on_nodes(file for _, file in filelist.iterate_files(plan.files))
    if not is_remote(work.encode.bundle):
        folder = Path(work.encode.bundle).absolute()
        require_files("encode.bundle", [(str(folder / file.path), file.size) for file in Bundle.load(folder).files])
    require_shared_folders({"encode.table": work.table.uri, "encode.quarantine": work.quarantine.uri})
