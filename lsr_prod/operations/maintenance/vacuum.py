"""Delete files of a table that nothing needs: old plans, and parts and vectors that no kept version names.

Only files with names that lsr_prod gives are deleted. A young file is kept, since a commit in progress may use it: an
attempt that reuses a file of an earlier attempt touches it, and the vacuum checks the modification time again right
before it deletes a part or a file of deletion vectors. A part that a marker names is deleted only by a later vacuum,
after its marker: then no attempt can reuse it. Modification times are those of the store's clock.

The plans of a table form a chain: each plan has a link to the next one. A running process may follow a link of the
first plan that it has read earlier, so all plans from the target of the oldest such link on must stay.
``shorten_chain`` links the first plan to a recent one. Once that link is older than the retention, no process follows
the older links, and the plans between are deleted. What remains of them: the record and the link of a plan that one of
the chain follows, and the links of plans that were given up, so that an attempt that has stalled for longer than the
retention cannot commit such a plan. A plan outside of the chain is kept as long as it may be linked: while its base is
the newest plan.
"""

import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lsr_prod.encoding.commit import committer, fence, markers
from lsr_prod.encoding.plans.successors import (
    PLANS_FOLDER,
    SUCCESSORS_FOLDER,
    PlanLink,
    link_shortcut,
    plan_chain,
    read_record,
    record_name,
    valid_links,
)
from lsr_prod.encoding.run_records import RUNS_FOLDER, TOTALS_FOLDER, WAVES_FOLDER
from lsr_prod.encoding.tables import Table, live_rows, load_table, sparse_table
from lsr_prod.errors import ArtifactError
from lsr_prod.logs import get_log
from lsr_prod.storage import Entry, Store, disk, in_threads

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

_PART = re.compile(r"^([^/]+=[^/]*/)+part-[0-9a-f]{64}(-[0-9a-f]{64})?(-\d+)?\.parquet$")
_VECTORS = re.compile(r"^deletion_vector_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin$")
_MARKER = re.compile(r"^_lsr_prod/done/.+\.json$")
_LOG = re.compile(r"^_delta_log/(\d{20})\.(json|crc|checkpoint\.parquet|checkpoint\.\d+\.\d+\.parquet)$")
_CHECKPOINT = "checkpoint.parquet"
_RECORDS = (TOTALS_FOLDER, RUNS_FOLDER, WAVES_FOLDER)
_FOLDERS = "|".join(map(re.escape, (PLANS_FOLDER, fence.EPOCHS_FOLDER, SUCCESSORS_FOLDER, *_RECORDS)))
_NAME = re.compile(
    rf"^(?P<folder>{_FOLDERS})/(?P<plan>[0-9a-f]+)(?P<rest>/\d+\.json|\.json|\.(?:files|slices)\.parquet)$"
)


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
    log.info("vacuumed", extra={"fields": {"table": store.uri, "files": garbage.counts(), "bytes": garbage.size}})
    return garbage


def shorten_chain(table: Table) -> None:
    """Link the first plan to the newest plan of the chain that has committed a wave, if plans are between them."""
    root = table.properties.get(sparse_table.PLAN_PROPERTY)
    first = None if root is None else next(valid_links(table.store, root, partial(committer.waves_done, table)), None)
    if root is None or first is None:
        return
    chain = _chain_from(table, first.plan)
    committed = [plan for plan in chain if committer.waves_done(table, plan)]
    if committed and committed[-1] != first.plan:
        link_shortcut(table.store, root, committed[-1], first.waves)
        log.info("chain shortened", extra={"fields": {"table": table.store.uri, "plans": chain.index(committed[-1])}})


def paths_in_markers(store: Store) -> frozenset[str]:
    """Return the paths of the parts, of a sparse table and its quarantine, that the markers in a folder name."""

    def paths(name: str) -> list[str]:
        return [*markers.marked_files(store, [name])]

    names = filter(_MARKER.match, store.names(markers.MARKERS_FOLDER))
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
        "drafts": [entry for entry in old if disk.is_draft(entry.name)],
        "log": find_old_log(table, old, {oldest, *keep_versions}),
        **find_old_plans(table, entries, horizon),
    }
    return Garbage(len(kept), kinds)


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
    return {*files["path"].to_pylist()} | live_rows.vector_files(files)


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


def find_old_plans(table: Table, entries: Sequence[Entry], horizon: float) -> dict[str, list[Entry]]:
    """Find the files of plans that nothing needs; the kinds are some of ``KINDS``."""
    root = table.properties.get(sparse_table.PLAN_PROPERTY)
    if root is None:
        return {}
    found: dict[str, list[Entry]] = defaultdict(list)
    files = _by_plan(entries)
    links = _links_in_use(table, root, {entry.name: entry.modified for entry in entries}, horizon)
    newest, chain = _reachable(table, root, links)
    for plan, own in files.items():
        found["epochs"] += _needless_epochs(own[fence.EPOCHS_FOLDER], in_chain=plan in chain)
    if links:
        in_use = {link.name for link in links}
        found["successors"] += [entry for entry in files[root][SUCCESSORS_FOLDER] if entry.name not in in_use]
        found["totals"] += [entry for folder in _RECORDS for entry in files[root][folder]]
    plans = [*files]
    headers = dict(zip(plans, in_threads(partial(read_record, table.store), plans), strict=True))
    bases = {header.get("base") for plan, header in headers.items() if plan in chain and header is not None}
    for plan, header in headers.items():
        if plan in chain or (header is not None and header.get("base") == newest):
            continue
        own = files[plan]
        found["plan_lists"] += [entry for entry in own[PLANS_FOLDER] if entry.name != record_name(plan)]
        found["totals"] += [entry for folder in _RECORDS for entry in own[folder]]
        if plan in bases:  # an attempt at its successor looks for its record and its link
            continue
        found["plan_records"] += [entry for entry in own[PLANS_FOLDER] if entry.name == record_name(plan)]
        if header is not None and committer.waves_done(table, plan) >= header.get("waves", math.inf):
            found["successors"] += own[SUCCESSORS_FOLDER]
    return {kind: [entry for entry in some if entry.modified < horizon] for kind, some in found.items()}


def _by_plan(entries: Sequence[Entry]) -> defaultdict[str, defaultdict[str, list[Entry]]]:
    """Return the files of plans: plan -> folder -> files."""
    files: defaultdict[str, defaultdict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        if match := _NAME.match(entry.name):
            files[match["plan"]][match["folder"]].append(entry)
    return files


def _links_in_use(table: Table, root: str, times: Mapping[str, float], horizon: float) -> list[PlanLink]:
    """Return the links of the first plan that a running process may follow: the newest old one and all younger ones.

    Without an old one nothing is known about the links that are followed, and the result is empty.
    """
    in_use = []
    for link in valid_links(table.store, root, partial(committer.waves_done, table)):
        in_use.append(link)
        if times.get(link.name, horizon) < horizon:
            return in_use
    return []


def _reachable(table: Table, root: str, links: Sequence[PlanLink]) -> tuple[str, set[str]]:
    """Return the newest plan, and all plans that a running process may find."""
    chains = [_chain_from(table, plan) for plan in dict.fromkeys(link.plan for link in links)] or [
        _chain_from(table, root)
    ]
    return chains[0][-1], {root, *(plan for chain in chains for plan in chain)}


def _chain_from(table: Table, plan: str) -> list[str]:
    return plan_chain(table.store, plan, partial(committer.waves_done, table))


def _needless_epochs(epochs: Sequence[Entry], *, in_chain: bool) -> list[Entry]:
    """Return the epochs without the newest one of a plan of the chain: only that one may commit."""
    ordered = sorted(epochs, key=lambda entry: int(entry.name.rpartition("/")[2].removesuffix(".json")))
    return ordered[:-1] if in_chain else ordered
