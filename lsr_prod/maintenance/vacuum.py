"""Delete files that no kept version names: leftovers of interrupted runs, replaced parts, drafts and old markers.

Only files with names that lsr_prod gives are deleted. A young file is kept, since a commit in progress may use it: an
attempt that reuses a part of an earlier attempt touches it, and the vacuum checks the modification time again right
before it deletes a file. A part that a marker names is deleted only by a later vacuum, after its marker: then no
attempt can reuse it. Modification times are those of the store's clock.
"""

import logging
import re
import time
from collections.abc import Collection
from dataclasses import dataclass

from lsr_prod.encoding.commit.markers import MARKERS_FOLDER, marked_parts
from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.storage.drafts import is_draft
from lsr_prod.storage.local import Entry
from lsr_prod.tables import Table, open_table

__all__ = ["Garbage", "find_garbage", "kept_paths", "vacuum"]

log = logging.getLogger(__name__)

_PART = re.compile(r"^([^/]+=[^/]*/)+part-[0-9a-f]{64}(-[0-9a-f]{64})?(-\d+)?\.parquet$")
_MARKER = re.compile(r"^_lsr_prod/done/.+\.json$")


@dataclass(frozen=True, slots=True)
class Garbage:
    """Files that a vacuum deletes.

    Attributes:
        entries: files that no kept version names; markers come first, so that none ever names a deleted part.
        kept: number of files that a kept version names.
    """

    entries: tuple[Entry, ...]
    kept: int

    @property
    def size(self) -> int:
        """Total bytes of the files."""
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

    The kept versions are those that were the newest one at some time in the last ``retention_s`` seconds, and
    ``keep_versions``. A run that is killed leaves a valid table.

    Args:
        store: the table's folder.
        retention_s: seconds; longer than a wave takes and longer than a reader uses a version.
        keep_versions: further versions, for example those that index versions name.
        markers_of: the folder with the markers that name its parts, if it is the folder of another table.
        dry_run: find the files, but delete nothing.

    Raises:
        ArtifactError: there is no table, or a version to keep cannot be read; nothing was deleted.
    """
    now = time.time() if dry_run else store.now("_lsr_prod")
    garbage = find_garbage(store, now - retention_s, keep_versions, markers_of or store)
    if dry_run:
        return garbage
    for entry in garbage.entries:
        current = store.entry(entry.name)
        if current is not None and current.modified == entry.modified:  # otherwise an attempt has reused it
            store.delete(entry.name)
    fields = {"table": store.uri, "files": len(garbage.entries), "bytes": garbage.size}
    log.info("vacuumed", extra={"fields": fields})
    return garbage


def find_garbage(store: Store, horizon: float, keep_versions: Collection[int], markers_of: Store) -> Garbage:
    """Find the files that a vacuum would delete.

    Args:
        store: the table's folder.
        horizon: seconds since 1970; newer files are not deleted.
        keep_versions: versions to keep at any age.
        markers_of: the folder with the markers.
    """
    # List the files before reading the versions: a part of a commit that lands in between is young.
    marked = {part.path for part in marked_parts(markers_of, filter(_MARKER.match, markers_of.names(MARKERS_FOLDER)))}
    entries = store.entries()
    table = open_table(store)
    if table is None:
        raise ArtifactError(f"{store.uri} is not a table; give a folder that lsr-prod encode wrote")
    kept = kept_paths(table, horizon, keep_versions)
    old = [entry for entry in entries if entry.modified < horizon and entry.name not in kept]
    markers = [entry for entry in old if _MARKER.match(entry.name)]
    others = [entry for entry in old if (_PART.match(entry.name) and entry.name not in marked) or is_draft(entry.name)]
    return Garbage((*markers, *others), len(kept))


def kept_paths(table: Table, horizon: float, keep_versions: Collection[int]) -> set[str]:
    """Return the paths that kept versions name.

    Args:
        table: the newest snapshot.
        horizon: seconds since 1970; versions that were the newest one at some time after it are kept.
        keep_versions: versions to keep at any age.

    Raises:
        ArtifactError: a kept version cannot be read.
    """
    commits = [entry for entry in table.log() if entry.version <= table.version]
    # The version before the first young commit was the newest one until then.
    young = [entry.version for entry in commits if entry.committed_at >= horizon]
    oldest = max(0, min(young, default=table.version + 1) - 1)
    kept = _paths(table) | _files_of(table.store, oldest) | table.added_since(oldest)
    for version in set(keep_versions):
        kept |= _files_of(table.store, version)
    return kept


def _files_of(store: Store, version: int) -> set[str]:
    try:
        table = open_table(store, version)
    except OSError as error:
        raise ArtifactError(f"version {version} of {store.uri} must be kept, but cannot be read ({error})") from error
    assert table is not None
    return _paths(table)


def _paths(table: Table) -> set[str]:
    return {*table.file_table()["path"].to_pylist()}
