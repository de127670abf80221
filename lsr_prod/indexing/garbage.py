"""Delete files of an index that no kept publication names: old versions and leftovers of interrupted runs.

The newest publications are kept, those that were current recently, and those that are pinned. Versions that a process
reads are kept (``storage.version_locks``), and so are young versions, shards and lists: a build may be about to publish
them, and it touches what it reuses: a shard or a bundle by its manifest. Readers of an object store copy a version
before they read it; one whose version is deleted while it copies opens the current version. Only files with names that
lsr_prod gives are deleted. Times are those of the clock of the store.

Old versions are deleted first. What is left is read, so that a version that was touched meanwhile keeps its shards.
Then old shards, bundles and lists that no version names are deleted. A folder has the files of a shard in the shard,
which is deleted whole; an object store has them as ``files/<sha256>``, which go last, if no manifest names them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from lsr_prod.logs import get_log
from lsr_prod.storage import Entry, Store, as_store, disk, drafts, in_threads, is_remote, version_locks
from lsr_prod.storage.formats import bundle_format, digests, index_format
from lsr_prod.storage.publications import delete_publication, read_pins

log = get_log(__name__)
_SHA = "[0-9a-f]{64}"
_PUBLICATION = re.compile(r"publications/(\d{6,})\.json")
_VERSION = re.compile(rf"versions/({_SHA})\.json")
_FILE = re.compile(rf"(versions|takedowns|reports)/{_SHA}\.json|tombstones/{_SHA}\.npy|files/{_SHA}")
_SHARED = re.compile(rf"files/{_SHA}")
_FOLDER = re.compile(rf"(shards|bundles)/{_SHA}")
_MANIFESTS = {"shards": index_format.SHARD_FILE, "bundles": bundle_format.BUNDLE_FILE}


@dataclass(frozen=True, slots=True)
class GarbageSummary:
    """Summary of a garbage collection."""

    publications: int  # publications that were deleted
    objects: int  # other files and folders that were deleted
    size: int  # bytes of these files and folders

    def result(self) -> dict[str, int]:
        """Return the flat summary of a job."""
        return {"publications": self.publications, "objects": self.objects, "bytes": self.size}


@dataclass(frozen=True, slots=True)
class _Item:
    """A file, or the folder of a shard, a bundle or a draft."""

    name: str  # its path in the index
    # time of its last use, in seconds since 1970: of its manifest if it has one, else of its newest file
    modified: float
    size: int  # bytes of its files


def collect_garbage(index: Store | Path, *, keep: int, age_s: float) -> GarbageSummary:
    """Delete old publications and the files that no kept publication names.

    A run that is killed leaves a valid index; a later run deletes the rest once it is older than ``age_s``.

    Args:
        index: folder or store of the index.
        keep: number of newest publications to keep, 1 or more.
        age_s: seconds; newer files are kept, and so are publications that were current since then. Longer than a build
            takes and longer than a reader uses a version.

    Raises:
        ArtifactError: a kept version is missing or damaged; only publications were deleted.
    """
    store = as_store(index)
    horizon = store.now("publications") - age_s
    publications = sum(delete_publication(store, number) for number in _old_publications(store, keep, horizon))
    # List before reading the kept versions: a version published in between names nothing of this list, or touched it.
    old = [item for item in _list_items(store) if item.modified < horizon]
    published = _read_all(store, [name for name in store.names("publications") if _PUBLICATION.fullmatch(name)])
    kept = _kept_versions(store, published, horizon)
    named = _named(store, kept)  # a kept version that cannot be read ends the run before anything else is deleted
    named |= {f"reports/{one.get('report')}.json" for one in published}
    versions = {item.name for item in old if _VERSION.fullmatch(item.name)}
    deleted = _delete(store, [item for item in old if item.name in versions - kept], horizon)
    named |= _named(store, _versions(store) - kept, missing=True)
    rest = [item for item in old if item.name not in named | versions]
    deleted += _delete(store, [item for item in rest if not _SHARED.fullmatch(item.name)], horizon)
    if files := [item for item in rest if _SHARED.fullmatch(item.name)]:
        folders = [
            item.name for kind in _MANIFESTS for item in _list_items(store, kind) if _FOLDER.fullmatch(item.name)
        ]
        manifests = _read_all(store, [_object(name) for name in folders], missing=True)
        named = {f"files/{file['sha256']}" for one in manifests for file in one["files"]}
        deleted += _delete(store, [item for item in files if item.name not in named], horizon)
    summary = GarbageSummary(publications, len(deleted), sum(item.size for item in deleted))
    log.info("garbage collected", extra={"fields": summary.result()})
    return summary


def _old_publications(store: Store, keep: int, horizon: float) -> list[int]:
    """Return the publications to delete unless they are pinned, oldest first: superseded before the horizon."""
    listed = store.entries("publications")
    found = sorted((int(match[1]), entry) for entry in listed if (match := _PUBLICATION.fullmatch(entry.name)))
    pairs = list(pairwise(found))[: max(0, len(found) - keep)]
    return [number for (number, _), (_, after) in pairs if after.modified < horizon]


def _list_items(store: Store, prefix: str = "") -> Iterator[_Item]:
    """Yield everything that may be garbage; a shard or a bundle of an object store is its manifest."""
    entries, remote = store.entries(prefix), is_remote(store.uri)
    if not remote:
        entries += _folders(Path(store.uri), prefix or "*/*")
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault("/".join(entry.name.split("/")[:2]), []).append(entry)
    for name, group in groups.items():
        dated = group
        if _FOLDER.fullmatch(name):
            manifest = [entry for entry in group if entry.name == _object(name)]
            if name in (entry.name for entry in group) or (remote and not manifest):
                continue  # a file of that name, or of that folder, is not ours
            dated = manifest or group
        elif not _FILE.fullmatch(name) and not disk.is_draft(name):
            continue
        yield _Item(name, max(entry.modified for entry in dated), sum(entry.size for entry in group))


def _folders(index: Path, pattern: str) -> Iterator[Entry]:
    """Yield the folders of a local index, which may be empty; their names end with a slash."""
    for path in index.glob(pattern):
        with suppress(FileNotFoundError):  # finished or deleted meanwhile
            if path.is_dir():
                yield Entry(f"{path.relative_to(index).as_posix()}/", 0, path.stat().st_mtime, None)


def _object(name: str) -> str:
    """Return the path of the file that is touched when an item is used."""
    return f"{name}/{_MANIFESTS[name.partition('/')[0]]}" if _FOLDER.fullmatch(name) else name


def _versions(store: Store, since: float = 0.0) -> set[str]:
    """Return the names of versions that were used at or after a time."""
    return {one.name for one in store.entries("versions") if _VERSION.fullmatch(one.name) and one.modified >= since}


def _kept_versions(store: Store, published: Iterable[Any], horizon: float) -> set[str]:
    """Return the names of the versions that publications and pins name, and of young ones."""
    shas = {one["version"] for one in published} | {pin.version for pin in read_pins(store)}
    return {f"versions/{sha}.json" for sha in shas} | _versions(store, horizon)


def _named(store: Store, versions: Iterable[str], *, missing: bool = False) -> set[str]:
    """Return the names of all that versions of any format name; with ``missing``, deleted versions name nothing."""
    named = set()
    for version in _read_all(store, sorted(versions), missing=missing):
        named |= {f"bundles/{version['bundle_digest']}", *(f"shards/{shard['sha']}" for shard in version["shards"])}
        lists = [one["file"] for one in version.get("tombstones", []) if one]
        lists += [version["takedowns"]] if version.get("takedowns") else []
        files = [*lists, *(file for shard in version["shards"] for file in shard["files"])]
        named |= {file["path"] for file in lists} | {f"files/{file['sha256']}" for file in files}
    return named


def _read_all(store: Store, names: Sequence[str], *, missing: bool = False) -> list[Any]:
    """Read JSON objects; with ``missing`` those that another garbage collection deleted are left out."""

    def read(name: str) -> Any:
        data = store.get(name)
        if data is None and missing:
            return None
        with digests.parsing(f"{store.uri}/{name} cannot be read", "publish another version"):
            return json.loads(data or b"")

    return [one for one in in_threads(read, names) if one is not None]


def _delete(store: Store, garbage: Sequence[_Item], horizon: float) -> list[_Item]:
    """Delete items unless they are read or were used meanwhile; return those that were deleted."""
    deleted = in_threads(lambda item: _delete_item(store, item.name, horizon), garbage)
    return [item for item, was in zip(garbage, deleted, strict=True) if was]


def _delete_item(store: Store, name: str, horizon: float) -> bool:
    found = store.entry(_object(name)) or next(_list_items(store, name), None)
    if found is None or found.modified >= horizon:
        return False
    if is_remote(store.uri):
        store.delete(_object(name))
        return True
    path = Path(store.uri) / name
    with suppress(FileNotFoundError):  # another garbage collection deleted it
        if _VERSION.fullmatch(name):
            return version_locks.delete_unless_read(path, horizon)
        drafts.remove(path, unless=lambda draft: _used(draft / Path(_object(name)).name, horizon))
        return not path.exists()
    return False


def _used(manifest: Path, horizon: float) -> bool:
    return manifest.is_file() and manifest.stat().st_mtime >= horizon
