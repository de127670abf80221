"""The next version of an index: from the current one and what changed in the table, or whole.

A small change is one delta shard with the documents that are new or differ, and tombstones for what they replace and
for what is gone; all other shards stay as they are. The last shard that holds a document holds its current row.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa

from lsr_prod.config import IndexSettings
from lsr_prod.errors import PublicationError
from lsr_prod.formats.index import SHARD_FILE, IndexVersion, ShardManifest, Tombstones
from lsr_prod.formats.table import bucket_of
from lsr_prod.indexing.changes import RowChange, changed_parts, changed_rows, row_schema
from lsr_prod.indexing.delta import Selection, build_delta, digest_selection, plan_delta
from lsr_prod.indexing.plan import IndexPlan, ShardPlan, digest_parts
from lsr_prod.indexing.rows import read_buckets
from lsr_prod.indexing.shard import BuiltShard, build_shard
from lsr_prod.indexing.tombstones import as_ids, hide, load_takedowns, load_tombstones, read_ids
from lsr_prod.indexing.versions import write_version
from lsr_prod.indexing.workers import Workers
from lsr_prod.tables import Table, open_table

__all__ = ["Derived", "Deriver", "Mode"]

Mode = Literal["full", "delta", "merge", "unchanged"]


@dataclass(frozen=True, slots=True)
class Derived:
    """A version, and what it took.

    Attributes:
        version: it is written, unless it is the current one.
        mode: ``full``: all shards from the table; ``delta``: one shard more; ``merge``: the same, and it takes in
            earlier delta shards; ``unchanged``: the current version.
        reason: why all shards were built; "" in the other modes.
        upserts: documents that are new or changed since the current version, as far as that was asked.
        deletes: documents that are gone since, as far as that was asked.
        built: the shards that were planned, those included that were there already.
    """

    version: IndexVersion
    mode: Mode
    reason: str
    upserts: int
    deletes: int
    built: tuple[BuiltShard, ...]


@dataclass(frozen=True, slots=True)
class _Changes:
    """What changed since the current version; or why that is not asked."""

    rows: tuple[RowChange, ...] = ()
    whole: str = ""

    @property
    def upserts(self) -> int:
        return sum(len(change.upserts) for change in self.rows)

    @property
    def deletes(self) -> int:
        return sum(len(change.deletes) for change in self.rows)


class Deriver:
    """Derives the next version, from one head after the other: what changed in the table is found once for each."""

    def __init__(self, plan: IndexPlan, settings: IndexSettings, index: Path, workers: Workers) -> None:
        """Take the input.

        Args:
            plan: the input.
            settings: how far delta shards may grow.
            index: the index folder.
            workers: where shards are built.
        """
        self._plan, self._settings, self._index, self._workers = plan, settings, index, workers
        self._compared: dict[str, _Changes] = {}

    def derive(self, base: IndexVersion | None) -> Derived:
        """Build what the table's pinned version needs beyond the current version, and write the version.

        Args:
            base: the current version; None: there is none.

        Raises:
            ArtifactError: the table, a shard or a list is missing or damaged.
            PublicationError: the shards do not hold what the table holds.
        """
        takedowns = load_takedowns(self._index, base) if base else []
        changes = self._find_changes(base, len(takedowns))
        if base is None or changes.whole:
            return _build_whole(self._plan, self._index, base, takedowns, changes, self._workers)
        folded = _choose_folded(base.shards, changes.upserts, self._settings.max_delta_shards)
        if not changes.upserts and not changes.deletes and not folded:
            return Derived(base, "unchanged", "", 0, 0, ())
        return _build_delta(self._plan, self._index, base, takedowns, changes, folded, self._workers)

    def _find_changes(self, base: IndexVersion | None, takedowns: int) -> _Changes:
        if base is None:
            return _Changes(whole="no version of this format is published")
        made_by = (base.bundle_digest, base.vocabulary_sha256, base.impact_step, base.table_uri)
        of, uri, max_delta = self._plan.properties, self._plan.snapshot.store.location, self._settings.max_delta
        if made_by != (of.bundle_digest, of.vocabulary_sha256, of.impact_step, uri):
            return _Changes(whole="another table or bundle")
        if base.layout != self._plan.layout_digest:
            return _Changes(whole="other settings of the shards")
        if base.table_parts not in self._compared:
            self._compared[base.table_parts] = _compare(self._plan, max_delta, base, self._workers)
        changes = self._compared[base.table_parts]
        # Documents that were taken down have tombstones in base shards too, and those do not grow.
        hidden = max(0, base.deleted - takedowns) + sum(one.replaced for one in changes.rows) + changes.deletes
        outside = hidden + changes.upserts + sum(shard.documents for shard in base.shards if shard.role == "delta")
        if outside > max_delta * (changes.upserts + sum(shard.documents for shard in base.shards)):
            reason = f"delta shards and tombstones would hold more than index.max_delta={max_delta}"
            return replace(changes, whole=changes.whole or reason)
        return changes


def _compare(plan: IndexPlan, max_delta: float, base: IndexVersion, workers: Workers) -> _Changes:
    """The rows that changed since the table's version that ``base`` was built from."""
    table = plan.snapshot
    if base.table_parts == plan.table_parts:
        return _Changes()
    old = _snapshot_of(base, table)
    parts = changed_parts(old, table) if old else []
    if old is None or any(table.store.entry(file.path) is None for part in parts for file in part.removed):
        return _Changes(whole=f"the table no longer has version {base.table_version}, which the index was built from")
    schema = row_schema(table, plan.properties.stored_fields)
    tasks = [(table.store, part, schema) for part in parts]
    rows: list[RowChange] = []
    left = max_delta * sum(shard.documents for shard in base.shards)
    for _, change in workers.run(changed_rows, tasks, size=sum(part.size for part in parts)):
        rows.append(change)
        left -= len(change.upserts) + len(change.deletes)
        if left < 0:
            return _Changes(whole=f"more than index.max_delta={max_delta} of the documents changed")
    return _Changes(tuple(sorted(rows, key=lambda change: change.bucket)))


def _snapshot_of(base: IndexVersion, table: Table) -> Table | None:
    """The table as the current version saw it; None if it has no such version any more, or it says something else."""
    if base.table_version not in {entry.version for entry in table.log()}:
        return None
    old = open_table(table.store, base.table_version)
    return old if old is not None and digest_parts(old) == base.table_parts else None


def _choose_folded(shards: Sequence[ShardManifest], upserts: int, most: int) -> tuple[int, ...]:
    """Places of the delta shards that the new one takes in: none as long as there are not too many.

    Else the smallest, until few enough are left, and those that are no larger than what they would join: a document is
    written again a number of times that grows with the logarithm of the nights.
    """
    deltas = sorted((shard.documents, place) for place, shard in enumerate(shards) if shard.role == "delta")
    if len(deltas) + bool(upserts) <= most:
        return ()
    folded: list[int] = []
    total = upserts
    for documents, place in deltas:
        if len(deltas) - len(folded) < most and documents > total:
            break
        folded.append(place)
        total += documents
    return tuple(sorted(folded))


def _build_whole(
    plan: IndexPlan, index: Path, base: IndexVersion | None, takedowns: list[str], changes: _Changes, workers: Workers
) -> Derived:
    size = sum(file.size for file in plan.snapshot.files())
    built = dict(workers.run(_build_base, [(shard, index) for shard in plan.shards], size=size))
    shards = tuple(built[place] for place in range(len(plan.shards)))
    gone = as_ids(takedowns)
    properties, layout = plan.properties, plan.layout
    version = IndexVersion(
        shards=tuple(shard.manifest for shard in shards),
        bundle_digest=properties.bundle_digest,
        vocabulary_sha256=properties.vocabulary_sha256,
        impact_step=properties.impact_step,
        dk=layout.dk,
        table_uri=plan.snapshot.store.location,
        table_version=plan.snapshot.version,
        stored_fields=layout.stored_fields,
        text_fields=layout.text_fields,
        attributes=dict(layout.attributes),
        average_length=layout.average_length,
        tombstones=tuple(hide(index, shard.manifest, None, gone) for shard in shards),
        takedowns=base.takedowns if base else None,
        table_parts=plan.table_parts,
        layout=plan.layout_digest,
    )
    _finish(plan, index, version, takedowns)
    mode: Mode = "unchanged" if version == base else "full"
    reason = changes.whole if mode == "full" else ""
    return Derived(version, mode, reason, changes.upserts, changes.deletes, shards)


def _build_base(plan: ShardPlan, index: Path) -> BuiltShard:
    built = build_shard(plan, read_buckets(plan), index)
    os.utime(index / "shards" / plan.sha / SHARD_FILE)  # used again: no garbage, however long the others take
    return built


def _build_delta(
    plan: IndexPlan,
    index: Path,
    base: IndexVersion,
    takedowns: list[str],
    changes: _Changes,
    folded: tuple[int, ...],
    workers: Workers,
) -> Derived:
    selections = _select(plan, index, base, takedowns, changes, folded)
    size = sum(selection.size for selection in selections)
    digests = dict(workers.run(digest_selection, [(selection,) for selection in selections], size=size))
    shard = plan_delta(plan, selections, [digests[place] for place in range(len(selections))])
    tasks = [(shard, selections, index)] if shard.documents else []
    built = tuple(one for _, one in workers.run(build_delta, tasks, size=size))

    replaced = [*(change.deletes for change in changes.rows), *(selection.ids for selection in selections)]
    gone = pa.chunked_array(replaced, pa.large_string()).combine_chunks()
    pairs = list(zip(base.shards, base.tombstones, strict=True))
    kept = [(shard, hide(index, shard, there, gone)) for i, (shard, there) in enumerate(pairs) if i not in folded]
    hidden = as_ids(takedowns)
    added: list[tuple[ShardManifest, Tombstones | None]] = [
        (one.manifest, hide(index, one.manifest, None, hidden)) for one in built
    ]
    version = replace(
        base,
        shards=tuple(shard for shard, _ in (*kept, *added)),
        tombstones=tuple(tombstones for _, tombstones in (*kept, *added)),
        table_version=plan.snapshot.version,
        table_parts=plan.table_parts,
    )
    _finish(plan, index, version, takedowns)
    return Derived(version, "merge" if folded else "delta", "", changes.upserts, changes.deletes, built)


def _select(
    plan: IndexPlan,
    index: Path,
    base: IndexVersion,
    takedowns: list[str],
    changes: _Changes,
    folded: tuple[int, ...],
) -> tuple[Selection, ...]:
    """The documents of the new shard, by bucket: what changed, and what stands in the shards that it takes in."""
    ids: dict[int, list[pa.Array]] = defaultdict(list)
    for change in changes.rows:
        ids[change.bucket].append(change.upserts)
    listed = set(takedowns)
    for place in folded:
        by_bucket: dict[int, list[str]] = defaultdict(list)
        for one in _standing(index, base.shards[place], base.tombstones[place], listed):
            by_bucket[bucket_of(one, plan.properties.buckets)].append(one)
        for bucket, some in by_bucket.items():
            ids[bucket].append(pa.array(some, pa.large_string()))
    schema = row_schema(plan.snapshot, plan.properties.stored_fields)
    store = plan.snapshot.store
    parts: dict[int, list[str]] = defaultdict(list)
    sizes: dict[int, int] = defaultdict(int)
    for file in plan.snapshot.files():
        bucket = int(file.partition["bucket"] or 0)
        parts[bucket].append(file.path)
        sizes[bucket] += file.size
    wanted = {bucket: pa.chunked_array(some).unique().sort() for bucket, some in sorted(ids.items())}
    return tuple(
        Selection(bucket, store, tuple(parts[bucket]), sizes[bucket], schema, some)
        for bucket, some in wanted.items()
        if len(some)
    )


def _standing(index: Path, shard: ShardManifest, tombstones: Tombstones | None, listed: set[str]) -> list[str]:
    """Ids of a shard that no later shard replaces; those that were taken down stay, in case they come back."""
    ids: list[str] = read_ids(index / "shards" / shard.sha, shard).to_pylist()
    if tombstones is None:
        return ids
    gone = {ids[ordinal] for ordinal in load_tombstones(index, shard, tombstones).tolist()}
    return [one for one in ids if one not in gone or one in listed]


def _finish(plan: IndexPlan, index: Path, version: IndexVersion, takedowns: list[str]) -> None:
    """Write a version that holds as many documents as the table; those that were taken down may be among them."""
    rows, documents = plan.documents, version.documents
    if not rows - len(takedowns) <= documents <= rows:
        raise PublicationError(f"the shards hold {documents} documents, the table {rows}; build again")
    write_version(index, version)
