"""Take documents down, so that they cannot be found whatever the table holds, and restore them.

A takedown writes one small file per shard and a publication, but builds no shard: readers that refresh see it within
seconds. Every version has the list of takedowns, and every later build hides the documents again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod import errors, logs
from lsr_prod.cluster.workers import IN_PROCESS, Workers
from lsr_prod.encoding.tables import live_rows, open_table
from lsr_prod.indexing import changes, publish
from lsr_prod.indexing.tombstones import (
    as_ids,
    find_documents,
    load_takedowns,
    load_tombstones,
    save_takedowns,
    save_tombstones,
    scan_size,
)
from lsr_prod.storage import Store, as_store, index_versions
from lsr_prod.storage.formats.index_format import IndexVersion, Publication
from lsr_prod.storage.formats.table_format import bucket_of

log = logs.get_log(__name__)

_SHOWN = 10  # ids in the log


@dataclass(frozen=True, slots=True)
class TakedownSummary:
    """Summary of a takedown or of a restoration."""

    publication: Publication  # the publication that makes the change visible; the current one if nothing changed
    documents: int  # documents that can be found
    changed: int  # documents that the change hid or restored
    takedowns: int  # ids on the list of takedowns
    unknown: tuple[str, ...] = ()  # of a takedown: new ids on the list that no document of the version has


def delete_documents(
    index: Store | Path, ids: Iterable[str], note: str = "", *, workers: Workers = IN_PROCESS
) -> TakedownSummary:
    """Hide documents in the current version and in every later build, until they are restored.

    Ids that are not in the index are taken down too, so that later builds hide them; the log warns of them
    once. Stored fields stay in the files of the shards until all shards are built again without the document.

    Args:
        index: folder or store of the index.
        ids: ids of the documents.
        note: note for people, stored in the publication.
        workers: look up the documents in the shards.

    Raises:
        PublicationError: nothing is published, or ``ids`` is empty.
        ArtifactError: a shard or the list is missing or damaged.
    """
    hidden = _check_ids(ids)
    new: list[str] = []

    def hide(before: IndexVersion) -> IndexVersion:
        new[:] = sorted({*hidden} - {*load_takedowns(index, before)})
        return publish.take_down(index, before, new, workers)

    done = _publish_changed(index, note or f"takedown of {len(hidden)}", hide)
    if done.changed == len(new):
        return done
    shards = index_versions.read_version(index, done.publication.version).shards
    tasks = [(index, shard, as_ids(new)) for shard in shards]
    found = workers.run(find_documents, tasks, size=scan_size(index, shards))
    unknown = sorted({*new}.difference(*(known.to_pylist() for _, (_, known) in found)))
    if unknown:
        fields = {"unknown": len(unknown), "ids": len(new), "first": ", ".join(unknown[:_SHOWN])}
        log.warning("no document of the index has some of the ids", extra={"fields": fields})
    return replace(done, unknown=tuple(unknown))


def restore_documents(
    index: Store | Path,
    ids: Iterable[str],
    note: str = "",
    *,
    options: Mapping[str, str] | None = None,
    workers: Workers = IN_PROCESS,
) -> TakedownSummary:
    """Restore documents: those in the index's version of the table can be found again at once.

    Documents that the table does not have appear with the first build that finds them there.

    Args:
        index: folder or store of the index.
        ids: ids of the documents; ids that are not taken down are ignored.
        note: note for people, stored in the publication.
        options: options of the object store that holds the table.
        workers: look up the documents in the shards.

    Raises:
        PublicationError: nothing is published, or ``ids`` is empty.
        ArtifactError: the table, a shard or the list is missing or damaged.
    """
    wanted = _check_ids(ids)
    note = note or f"takedown of {len(wanted)} ended"
    return _publish_changed(index, note, lambda before: _restore(index, before, wanted, dict(options or {}), workers))


def _check_ids(ids: Iterable[str]) -> list[str]:
    found = [] if isinstance(ids, str | bytes) else list(ids)  # the letters of a string are no ids
    if not found or not all(isinstance(one, str) for one in found):
        raise errors.PublicationError("no document is named; give a list of at least one id, all of them strings")
    return sorted(set(found))


def _publish_changed(index: Store | Path, note: str, change: Callable[[IndexVersion], IndexVersion]) -> TakedownSummary:
    """Publish what ``change`` makes of the current version; again, if another publication came first."""
    publisher = publish.Publisher(index, note=note)
    while True:
        current = publish.read_current_version(index)
        if (before := current.version) is None:
            raise errors.PublicationError(
                f"{as_store(index).uri} has no publication of this release; build one with lsr-prod index build"
            )
        after = change(before)
        if after != before:
            publish.write_version(index, after)
        if (publication := publisher.publish_next(current, after)) is not None:
            changed = abs(before.documents - after.documents)
            return TakedownSummary(publication, after.documents, changed, len(load_takedowns(index, after)))


def _restore(
    index: Store | Path, version: IndexVersion, ids: list[str], options: dict[str, str], workers: Workers
) -> IndexVersion:
    """Derive the version without the takedowns of the ids."""
    taken_down = load_takedowns(index, version)
    restored = sorted(set(ids) & set(taken_down))
    if not restored:
        return version
    left = sorted(set(taken_down) - set(restored))
    visible = _remove_tombstones(index, version, _find_in_table(version, restored, options), workers)
    return replace(visible, takedowns=save_takedowns(index, left))


def _remove_tombstones(index: Store | Path, version: IndexVersion, ids: pa.Array, workers: Workers) -> IndexVersion:
    """Remove the tombstones of documents in the last shard that has them: earlier shards have superseded rows."""
    tombstones, left = list(version.tombstones), ids
    tasks = [(index, shard, ids) for shard in version.shards]
    found = dict(workers.run(find_documents, tasks, size=scan_size(index, version.shards)))
    for place, shard in reversed(list(enumerate(version.shards))):
        ordinals, here = found[place]
        mine = pc.is_in(here, value_set=left)
        known = tombstones[place]
        if known is not None and pc.any(mine).as_py():
            visible = ordinals[mine.to_numpy(zero_copy_only=False)]
            tombstones[place] = save_tombstones(index, np.setdiff1d(load_tombstones(index, shard, known), visible))
        left = left.filter(pc.invert(pc.is_in(left, value_set=here)))
    return replace(version, tombstones=tuple(tombstones))


def _find_in_table(version: IndexVersion, ids: list[str], options: dict[str, str]) -> pa.Array:
    """Return the ids that the table has at the version that the index was built from."""
    store = Store(version.table_uri, options)
    table = open_table(store, version.table_version)
    if table is None:
        raise errors.ArtifactError(
            f"{store.uri} is no longer a table, so it is unknown whether it has these documents; restore the table"
        )
    buckets = table.sparse_properties.buckets
    schema = pa.schema([table.schema.field("doc_id")])
    wanted: dict[int, list[str]] = {}
    for doc_id in ids:
        wanted.setdefault(bucket_of(doc_id, buckets), []).append(doc_id)
    found: list[str] = []
    for bucket, some in wanted.items():
        files = live_rows.to_files(live_rows.files_of_buckets(table.file_table(), [bucket]))
        found += changes.find_rows(store, files, schema, as_ids(some))["doc_id"].to_pylist()
    return as_ids(found)
