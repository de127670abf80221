"""Delete files of an index that no kept publication names: old versions and leftovers of interrupted runs.

The newest publications are kept, those that were current recently, and those that are pinned. Versions that a process
reads are kept (``storage.version_locks``), and so are young versions, shards and tombstones: a build may be about to
publish them, and it touches the files that it reuses. Only files with names that lsr_prod gives are deleted.
Modification times are those of the disk's clock.
"""

import json
import re
from collections.abc import Container, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.index import SHARD_FILE
from lsr_prod.indexing.object_garbage import collect_objects
from lsr_prod.indexing.summaries import GarbageSummary
from lsr_prod.logs import get_log
from lsr_prod.storage import Store, as_store, is_remote
from lsr_prod.storage.draft_names import is_draft
from lsr_prod.storage.drafts import remove
from lsr_prod.storage.pins import delete_publication, read_pins
from lsr_prod.storage.version_locks import delete_unless_read

log = get_log(__name__)

_NUMBER = re.compile(r"^\d{6,}\.json$")
_SHA = r"[0-9a-f]{64}"
_VERSION = re.compile(rf"^{_SHA}\.json$")
_FILES = {"tombstones": re.compile(rf"^{_SHA}\.npy$"), "takedowns": _VERSION, "reports": _VERSION}
_FOLDERS = {"shards": SHARD_FILE, "bundles": BUNDLE_FILE}


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
    if is_remote(store.uri):
        return collect_objects(store, keep=keep, age_s=age_s)
    return _collect_folder(Path(store.uri), keep, age_s)


def _collect_folder(index: Path, keep: int, age_s: float) -> GarbageSummary:
    store = as_store(index)
    horizon = store.now("publications") - age_s
    old = _old_publications(index, keep, horizon)
    publications = sum(delete_publication(store, int(path.stem)) for path in old)
    # List the files before reading the kept versions: a version published in between names no file of this list, or
    # has touched it.
    candidates = [*_candidates(index)]
    kept = _kept_versions(index, horizon)
    named = _named(index, kept)  # a kept version that cannot be read ends the run before anything else is deleted
    named |= {f"reports/{one.get('report')}.json" for one in _publications(index)}
    objects, size = _delete_versions(index, kept, horizon)
    read = {path.stem for path in _versions(index)} - kept
    named |= _named(index, read, missing=True)
    for path in candidates:
        if path.relative_to(index).as_posix() in named or not 0 < _modified(path) < horizon:
            continue
        try:
            size += _remove(path, horizon)
        except FileNotFoundError:
            continue  # another garbage collection deleted it
        objects += 1
    summary = GarbageSummary(publications, objects, size)
    log.info("garbage collected", extra={"fields": summary.result()})
    return summary


def _old_publications(index: Path, keep: int, horizon: float) -> list[Path]:
    """Return the publications to delete unless they are pinned, oldest first: superseded before the horizon."""
    found = sorted(
        (path for path in (index / "publications").glob("*.json") if _NUMBER.match(path.name)),
        key=lambda path: int(path.stem),
    )
    return [path for path, after in list(pairwise(found))[: max(0, len(found) - keep)] if _modified(after) < horizon]


def _candidates(index: Path) -> Iterator[Path]:
    for folder, pattern in _FILES.items():
        yield from (path for path in (index / folder).glob("*") if pattern.match(path.name) or is_draft(path.name))
    for folder in _FOLDERS:
        named = (path for path in (index / folder).glob("*") if re.fullmatch(_SHA, path.name) or is_draft(path.name))
        yield from (path for path in named if path.is_dir())
    for folder in ("publications", "pins", "versions"):
        yield from (path for path in (index / folder).glob(".*") if is_draft(path.name))


def _kept_versions(index: Path, horizon: float) -> set[str]:
    """Return the versions that kept publications and pins name, and young ones."""
    shas = {one["version"] for one in _publications(index)} | {pin.version for pin in read_pins(index)}
    return shas | {path.stem for path in _versions(index) if _modified(path) >= horizon}


def _versions(index: Path) -> list[Path]:
    return [path for path in (index / "versions").glob("*.json") if _VERSION.match(path.name)]


def _publications(index: Path) -> list[Any]:
    """Return the publications that are left."""
    return [_json(path) for path in (index / "publications").glob("*.json") if _NUMBER.match(path.name)]


def _delete_versions(index: Path, kept: Container[str], horizon: float) -> tuple[int, int]:
    """Delete the files of versions that are neither kept nor read; return their number and bytes."""
    objects = size = 0
    for path in _versions(index):
        if path.stem in kept:
            continue
        try:
            length = path.stat().st_size
            if delete_unless_read(path, horizon):
                objects, size = objects + 1, size + length
        except FileNotFoundError:
            continue  # another garbage collection deleted it
    return objects, size


def _named(index: Path, shas: Iterable[str], *, missing: bool = False) -> set[str]:
    """Return the paths that versions of any format name; with ``missing`` deleted versions are left out."""
    named = set()
    for sha in shas:
        try:
            version = _json(index / "versions" / f"{sha}.json")
        except ArtifactError as error:
            if missing and isinstance(error.__cause__, FileNotFoundError):
                continue  # another garbage collection deleted it
            raise
        named |= {f"versions/{sha}.json", f"bundles/{version['bundle_digest']}"}
        named |= {f"shards/{shard['sha']}" for shard in version["shards"]}
        files = [one["file"] for one in version.get("tombstones", []) if one]
        named |= {file["path"] for file in [*files, version.get("takedowns")] if file}
    return named


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} cannot be read ({error}); publish another version") from error


def _modified(path: Path) -> float:
    """Return the time of the last use, seconds since 1970; 0 if deleted. A draft has the time of its newest file."""
    try:
        if not path.is_dir():
            return path.stat().st_mtime
        manifest = path / _FOLDERS[path.parent.name]
        if manifest.is_file() and not is_draft(path.name):
            return manifest.stat().st_mtime
        return max(one.stat().st_mtime for one in [path, *path.rglob("*")])
    except FileNotFoundError:
        return 0.0


def _remove(path: Path, horizon: float) -> int:
    """Delete a file or a folder and return its bytes; keep a folder that was touched after the horizon."""
    if not path.is_dir():
        return remove(path)
    manifest = _FOLDERS[path.parent.name]

    def touched(draft: Path) -> bool:
        return (draft / manifest).is_file() and (draft / manifest).stat().st_mtime >= horizon

    return remove(path, unless=touched)
