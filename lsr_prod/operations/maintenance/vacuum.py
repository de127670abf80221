"""Delete files that nothing needs: parts and deletion vectors that no kept version names, drafts, markers, plans, log.

Only files with names that lsr_prod gives are deleted. A young file is kept, since a commit in progress may use it: an
attempt that reuses a file of an earlier attempt touches it, and the vacuum checks the modification time again right
before it deletes a part or a file of deletion vectors. A part that a marker names is deleted only by a later vacuum,
after its marker: then no attempt can reuse it. Modification times are those of the store's clock.
"""

import re
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lsr_prod.encoding.commit.markers import MARKERS_FOLDER, marked_files
from lsr_prod.encoding.tables import Table, load_table
from lsr_prod.encoding.tables.live_rows import vector_files
from lsr_prod.errors import ArtifactError
from lsr_prod.logs import get_log
from lsr_prod.operations.maintenance.plans import find_old_plans
from lsr_prod.storage import Entry, Store, in_threads
from lsr_prod.storage.disk import is_draft

log = get_log(__name__)

KINDS = (
    "markers",
    "plan_records",
    "parts",
    "deletion_vectors",
    "drafts",
    "plan_lists",
    "epochs",
    "successors",
    "totals",
    "log",
)
"""Kinds of files, in the order of their deletion.

A marker goes before any part, so that none names a deleted part. The record of a plan goes before its links
(``successors.link_successor``).
"""

_REUSED = ("parts", "deletion_vectors", "drafts")  # a running attempt may reuse or complete such a file


@dataclass(frozen=True, slots=True)
class Garbage:
    """Files that a vacuum deletes."""

    kept: int  # number of parts and files of deletion vectors that a kept version names
    kinds: Mapping[str, Sequence[Entry]] = field(default_factory=dict)  # kind -> files

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All files, in the order of their deletion."""
        return tuple(entry for kind in KINDS for entry in self.kinds.get(kind, ()))

    @property
    def size(self) -> int:
        """Total bytes of the files."""
        return sum(entry.size for entry in self.entries)

    def counts(self) -> dict[str, int]:
        """Return the number of files of each kind that has some; the kinds of files of plans are added up."""
        counts = Counter({kind: len(files) for kind, files in self.kinds.items()})
        counts["plans"] = counts.pop("plan_records", 0) + counts.pop("plan_lists", 0)
        return {kind: number for kind, number in sorted(counts.items()) if number}


def delete_garbage(store: Store, garbage: Garbage) -> None:
    """Delete the files: parts, deletion vectors and drafts in threads, the others in groups.

    One of the former is deleted only if it was not written or touched since it was listed.
    """

    def delete_if_unchanged(listed: Entry) -> None:
        current = store.entry(listed.name)
        if current is not None and current.modified == listed.modified:  # otherwise an attempt has reused it
            store.delete(listed.name)

    for kind in KINDS:
        files: Collection[Entry] = garbage.kinds.get(kind, ())
        if kind in _REUSED:
            in_threads(delete_if_unchanged, files)
        else:
            store.delete_all([entry.name for entry in files])


_PART = re.compile(r"^([^/]+=[^/]*/)+part-[0-9a-f]{64}(-[0-9a-f]{64})?(-\d+)?\.parquet$")
_VECTORS = re.compile(r"^deletion_vector_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin$")
_MARKER = re.compile(r"^_lsr_prod/done/.+\.json$")


def vacuum(
    store: Store,
    retention_s: float,
    *,
    keep_versions: Collection[int] = (),
    marked: Collection[str] | None = None,
    dry_run: bool = False,
) -> Garbage:
    """Delete the files of a table that nothing needs.

    The kept versions are those that were the newest one at some time in the last ``retention_s`` seconds, and
    ``keep_versions``. A run that is killed leaves a valid table.

    Args:
        store: the table's folder.
        retention_s: seconds; longer than a wave takes and longer than a reader uses a version.
        keep_versions: further versions, for example those that index versions name.
        marked: paths of the files that markers name (``paths_in_markers``); None: read the markers in this folder.
        dry_run: find the files, but delete nothing.

    Raises:
        ArtifactError: there is no table, or a version to keep cannot be read; nothing was deleted.
    """
    now = time.time() if dry_run else store.now("_lsr_prod")
    garbage = find_garbage(
        store, now - retention_s, keep_versions, paths_in_markers(store) if marked is None else marked
    )
    if dry_run:
        return garbage
    delete_garbage(store, garbage)
    fields = {"table": store.uri, "files": garbage.counts(), "bytes": garbage.size}
    log.info("vacuumed", extra={"fields": fields})
    return garbage


def paths_in_markers(store: Store) -> frozenset[str]:
    """Return the paths of the parts, of a sparse table and its quarantine, that the markers in a folder name."""

    def paths(name: str) -> list[str]:
        return [*marked_files(store, [name])]

    names = filter(_MARKER.match, store.names(MARKERS_FOLDER))
    return frozenset(path for some in in_threads(paths, names) for path in some)


def find_garbage(store: Store, horizon: float, keep_versions: Collection[int], marked: Collection[str]) -> Garbage:
    """Find the files that a vacuum would delete."""
    # List the files before reading the versions: a part of a commit that lands in between is young.
    entries = store.entries()
    table = load_table(store)
    oldest = oldest_kept_version(table, horizon)
    kept = _kept_paths(table, oldest, keep_versions)
    old = [entry for entry in entries if entry.modified < horizon and entry.name not in kept]
    kinds = {
        "markers": [entry for entry in old if _MARKER.match(entry.name)],
        "parts": [entry for entry in old if _PART.match(entry.name) and entry.name not in marked],
        "deletion_vectors": [entry for entry in old if _VECTORS.match(entry.name) and entry.name not in marked],
        "drafts": [entry for entry in old if is_draft(entry.name)],
        "log": find_old_log(table, old, {oldest, *keep_versions}),
        **find_old_plans(table, entries, horizon),
    }
    return Garbage(len(kept), kinds)


def _kept_paths(table: Table, oldest: int, keep_versions: Collection[int]) -> set[str]:
    """Return the paths that ``keep_versions`` and the versions from ``oldest`` on name."""
    kept = _paths(table) | _files_of(table.store, oldest) | table.added_since(oldest)
    for version in set(keep_versions):
        kept |= _files_of(table.store, version)
    return kept


def _files_of(store: Store, version: int) -> set[str]:
    try:
        return _paths(load_table(store, version))
    except OSError as error:
        raise ArtifactError(f"version {version} of {store.uri} must be kept, but cannot be read ({error})") from error


def _paths(table: Table) -> set[str]:
    files = table.file_table()
    return {*files["path"].to_pylist()} | vector_files(files)


_LOG = re.compile(r"^_delta_log/(\d{20})\.(json|crc|checkpoint\.parquet|checkpoint\.\d+\.\d+\.parquet)$")
_CHECKPOINT = "checkpoint.parquet"


def oldest_kept_version(table: Table, horizon: float) -> int:
    """Return the version that was the newest one at ``horizon``, or the first one that is in the log."""
    commits = [entry for entry in table.log() if entry.version <= table.version]
    # The version before the first young commit was the newest one until then.
    young = [entry.version for entry in commits if entry.committed_at >= horizon]
    first = min((entry.version for entry in commits), default=table.version)
    return max(first, min(young, default=table.version + 1) - 1)


def find_old_log(table: Table, entries: Sequence[Entry], versions: Collection[int]) -> list[Entry]:
    """Return the commits and checkpoints that no kept version needs."""
    found = [(entry, int(match[1]), match[2]) for entry in entries if (match := _LOG.match(entry.name))]
    commits = {number for _, number, ending in found if ending == "json"}
    oldest = min(versions)
    checkpoints = {number for _, number, ending in found if ending == _CHECKPOINT and number <= oldest}
    base = max(checkpoints & commits, default=0)
    old = [entry for entry, number, _ in found if number < base]
    if old:
        load_table(table.store, base).file_table()  # it must be readable without them
    return old
