"""Delete objects of an index that no kept publication names.

An index in an object store has no folders to rename, so manifests are deleted first: versions, shards and bundles that
are old and that nothing kept names. Then all manifests that are left are read again, and old files that none of them
names are deleted. A build that reuses a shard or a bundle touches its manifest, and sends old files again; a build that
has written its version touches the version. Readers copy a version before they read it; one whose version is deleted
while it copies opens the current version.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.index import SHARD_FILE
from lsr_prod.indexing.summaries import GarbageSummary
from lsr_prod.logs import get_log
from lsr_prod.storage import Entry, Store
from lsr_prod.storage.draft_names import is_draft
from lsr_prod.storage.pins import delete_publication, read_pins
from lsr_prod.storage.threads import in_threads

log = get_log(__name__)

_SHA = "[0-9a-f]{64}"
_PUBLICATION = re.compile(r"publications/(\d{6,})\.json")
_VERSION = re.compile(rf"versions/({_SHA})\.json")
_REPORT = re.compile(rf"reports/({_SHA})\.json")
_SHARD = re.compile(rf"shards/({_SHA})/{re.escape(SHARD_FILE)}")
_BUNDLE = re.compile(rf"bundles/({_SHA})/{re.escape(BUNDLE_FILE)}")
_FILE = re.compile(rf"files/({_SHA})")


@dataclass(frozen=True, slots=True)
class _Named:
    """Names of objects that are kept, and the sha256 of the files that they name."""

    manifests: frozenset[str]
    files: frozenset[str]


def collect_objects(store: Store, *, keep: int, age_s: float) -> GarbageSummary:
    """Delete old publications and the objects that no kept publication names; see ``garbage.collect_garbage``."""
    horizon = store.now("publications") - age_s
    listed = store.entries()
    publications = _old_publications(listed, keep, horizon)
    deleted_publications = sum(delete_publication(store, number) for number in publications)
    # List before reading the kept versions: a version published in between is young, or was touched.
    old = [entry for entry in listed if entry.modified < horizon]
    kept = _kept_versions(store, horizon)
    garbage = [entry for entry in old if _is_manifest(entry.name) and entry.name not in kept.manifests]
    garbage += [entry for entry in old if is_draft(entry.name)]
    deleted = _delete(store, garbage, horizon)
    files = kept.files | _named_by_manifests(store)
    deleted += _delete(store, [one for one in old if (m := _FILE.fullmatch(one.name)) and m[1] not in files], horizon)
    summary = GarbageSummary(deleted_publications, len(deleted), sum(entry.size for entry in deleted))
    log.info("garbage collected", extra={"fields": summary.result()})
    return summary


def _old_publications(listed: Iterable[Entry], keep: int, horizon: float) -> list[int]:
    """Return the publications to delete, oldest first: not among the newest, and superseded before the horizon."""
    found = sorted((int(match[1]), entry) for entry in listed if (match := _PUBLICATION.fullmatch(entry.name)))
    pairs = list(pairwise(found))[: max(0, len(found) - keep)]
    return [number for (number, _), (_, after) in pairs if after.modified < horizon]


def _is_manifest(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (_VERSION, _REPORT, _SHARD, _BUNDLE))


def _kept_versions(store: Store, horizon: float) -> _Named:
    """Return everything that versions name which are published, pinned or young."""
    published = [name for name in store.names("publications") if _PUBLICATION.fullmatch(name)]
    publications = _read_all(store, published)
    names = {f"versions/{one['version']}.json" for one in publications}
    names |= {f"versions/{pin.version}.json" for pin in read_pins(store)}
    names |= {one.name for one in store.entries("versions") if _VERSION.fullmatch(one.name) and one.modified >= horizon}
    manifests, files = set(names), set()
    for version in _read_all(store, sorted(names)):
        manifests.add(f"bundles/{version['bundle_digest']}/{BUNDLE_FILE}")
        manifests |= {f"shards/{shard['sha']}/{SHARD_FILE}" for shard in version["shards"]}
        files |= {file["sha256"] for shard in version["shards"] for file in shard["files"]}
        lists = [one["file"] for one in version.get("tombstones", []) if one]
        files |= {file["sha256"] for file in [*lists, version.get("takedowns")] if file}
    manifests |= {f"reports/{one['report']}.json" for one in publications if one.get("report")}
    return _Named(frozenset(manifests), frozenset(files))


def _named_by_manifests(store: Store) -> set[str]:
    """Return the files of the bundles and shards that are there now."""
    names = [name for folder in ("bundles", "shards") for name in store.names(folder) if _is_manifest(name)]
    return {file["sha256"] for manifest in _read_all(store, names, missing=True) for file in manifest["files"]}


def _read_all(store: Store, names: Sequence[str], *, missing: bool = False) -> list[Any]:
    """Read JSON objects; with ``missing`` those that another garbage collection deleted are left out."""

    def read(name: str) -> Any:
        data = store.get(name)
        if data is None and missing:
            return None
        try:
            return json.loads(data or b"")
        except ValueError as error:
            raise ArtifactError(f"{store.uri}/{name} cannot be read ({error}); publish another version") from error

    return [one for one in in_threads(read, names) if one is not None]


def _delete(store: Store, garbage: Sequence[Entry], horizon: float) -> list[Entry]:
    """Delete objects unless they were touched or replaced meanwhile; return those that were deleted."""

    def delete(listed: Entry) -> bool:
        entry = store.entry(listed.name)
        if entry is None or entry.modified >= horizon:
            return False
        store.delete(listed.name)
        return True

    return [entry for entry, deleted in zip(garbage, in_threads(delete, garbage), strict=True) if deleted]
