"""Delete what nothing names: parts of killed attempts, parts that were replaced, drafts, and markers of finished cells.

Only names that lsr_prod gives are ever deleted. A file is kept as long as it is young, as it may belong to a commit
that is on its way: whoever finds a part of an earlier attempt and uses it makes it young again, and a file is looked at
once more right before it goes. A part that a marker names stays until a later vacuum, when the marker is gone: no
attempt can take it up any more. Ages are told by the clock of the store.
"""

import logging
import re
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass

from lsr_prod.encoding.commit.markers import MARKERS_FOLDER, marked_parts
from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.storage.local import Entry, is_draft
from lsr_prod.tables import Table, open_table

__all__ = ["Garbage", "find_garbage", "kept_paths", "vacuum"]

log = logging.getLogger(__name__)

_PART = re.compile(r"^([^/]+=[^/]*/)+part-[0-9a-f]{64}(-\d+)?\.parquet$")
_MARKER = re.compile(r"^_lsr_prod/done/.+\.json$")


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a vacuum finds.

    Attributes:
        entries: files that nothing names, markers first: none of them names a part that is gone.
        kept: files of the table that a kept version names.
    """

    entries: tuple[Entry, ...]
    kept: int

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(entry.size for entry in self.entries)


def vacuum(
    store: Store,
    retention_s: float,
    *,
    keep_versions: Collection[int] = (),
    markers_of: Store | None = None,
    dry_run: bool = False,
) -> Garbage:
    """Delete the files of a table that no kept version names.

    Kept are the versions that were the newest one at some moment of the last ``retention_s`` seconds, and
    ``keep_versions``. Killed at any moment it leaves a whole table.

    Args:
        store: the table's folder.
        retention_s: seconds; longer than a wave takes, and than a reader holds a version.
        keep_versions: further versions, for example those that index versions name.
        markers_of: the folder with the markers that name its parts, if that is another table's.
        dry_run: only look.

    Raises:
        ArtifactError: there is no table, or a version that is to be kept cannot be read; nothing was deleted.
    """
    now = time.time() if dry_run else _store_clock(store)
    garbage = find_garbage(store, now - retention_s, keep_versions, markers_of or store)
    if dry_run:
        return garbage
    for entry in garbage.entries:
        current = store.entry(entry.name)
        if current is not None and current.modified == entry.modified:  # else somebody took it up since
            store.delete(entry.name)
    fields = {"table": store.uri, "files": len(garbage.entries), "bytes": garbage.size}
    log.info("vacuumed", extra={"fields": fields})
    return garbage


def find_garbage(store: Store, horizon: float, keep_versions: Collection[int], markers_of: Store) -> Garbage:
    """What a vacuum would delete.

    Args:
        store: the table's folder.
        horizon: seconds since 1970; nothing younger is deleted.
        keep_versions: versions that are kept whatever their age.
        markers_of: the folder with the markers.
    """
    # Listed first: what a commit names that lands after the listing is young.
    marked = {part.path for part in marked_parts(markers_of, filter(_MARKER.match, markers_of.names(MARKERS_FOLDER)))}
    entries = store.entries()
    table = open_table(store)
    if table is None:
        raise ArtifactError(f"{store.uri} is no table; give the folder that jobs/encode.py wrote")
    kept = kept_paths(table, horizon, keep_versions)
    old = [entry for entry in entries if entry.modified < horizon and entry.name not in kept]
    markers = [entry for entry in old if _MARKER.match(entry.name)]
    others = [entry for entry in old if (_PART.match(entry.name) and entry.name not in marked) or is_draft(entry.name)]
    return Garbage((*markers, *others), len(kept))


def kept_paths(table: Table, horizon: float, keep_versions: Collection[int]) -> set[str]:
    """Paths that a kept version names.

    Args:
        table: the newest snapshot.
        horizon: seconds since 1970; a version that was the newest one after it is kept.
        keep_versions: versions that are kept whatever their age.

    Raises:
        ArtifactError: a kept version cannot be read.
    """
    commits = [entry for entry in table.log() if entry.version <= table.version]
    # The version before the first young commit was the newest one until then.
    young = [entry.version for entry in commits if entry.committed_at >= horizon]
    oldest = max(0, min(young, default=table.version + 1) - 1)
    kept = {file.path for file in table.files()} | _files_of(table.store, oldest) | table.added_since(oldest)
    for version in set(keep_versions):
        kept |= _files_of(table.store, version)
    return kept


def _files_of(store: Store, version: int) -> set[str]:
    try:
        table = open_table(store, version)
    except OSError as error:
        raise ArtifactError(f"version {version} of {store.uri} is to be kept and cannot be read ({error})") from error
    assert table is not None
    return {file.path for file in table.files()}


def _store_clock(store: Store) -> float:
    """What time it is for the store: this machine's clock may be days ahead."""
    name = f"_lsr_prod/.clock.{uuid.uuid4().hex}.tmp"  # a draft, should this process die here
    store.put_new(name, b"")
    entry = store.entry(name)
    store.delete(name)
    if entry is None:
        raise ArtifactError(f"{store.uri} does not keep what is written to it; look at the store")
    return entry.modified
