"""Delete files of an index that no kept publication names: old versions and leftovers of interrupted runs.

The newest publications are kept, and those that were current recently. Young versions, shards and tombstones are kept
too: a build may be about to publish them, and it touches the files that it reuses. Only files with names that lsr_prod
gives are deleted. Modification times are those of the disk's clock.
"""

import json
import logging
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.index import SHARD_FILE
from lsr_prod.indexing.object_garbage import collect_objects
from lsr_prod.indexing.summaries import GarbageSummary
from lsr_prod.storage import Store, as_store, is_remote
from lsr_prod.storage.drafts import is_draft, remove

__all__ = ["collect_garbage"]

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"^\d{6,}\.json$")
_SHA = r"[0-9a-f]{64}"
_FILES = {"versions": re.compile(rf"^{_SHA}\.json$"), "tombstones": re.compile(rf"^{_SHA}\.npy$")}
_FILES["takedowns"] = _FILES["reports"] = _FILES["versions"]
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
    publications = _old_publications(index, keep, horizon)
    for path in publications:
        store.delete(f"publications/{path.name}")
    # List the files before reading the kept versions: a version published in between names no file of this list, or
    # has touched it.
    candidates = [path for path in _candidates(index) if _modified(path) < horizon]
    named = _named(index, horizon)
    objects = size = 0
    for path in candidates:
        if path.relative_to(index).as_posix() in named or not 0 < _modified(path) < horizon:
            continue
        try:
            size += _remove(path, horizon)
        except FileNotFoundError:
            continue  # another garbage collection deleted it
        objects += 1
    summary = GarbageSummary(len(publications), objects, size)
    log.info("garbage collected", extra={"fields": summary.result()})
    return summary


def _old_publications(index: Path, keep: int, horizon: float) -> list[Path]:
    """Return the publications to delete, oldest first: not among the newest, and superseded before the horizon."""
    found = sorted(
        (path for path in (index / "publications").glob("*.json") if _NUMBER.match(path.name)),
        key=lambda path: int(path.stem),
    )
    pairs = list(pairwise(found))
    return [path for path, after in pairs[: max(0, len(found) - keep)] if after.stat().st_mtime < horizon]


def _candidates(index: Path) -> Iterator[Path]:
    for folder, pattern in _FILES.items():
        yield from (path for path in (index / folder).glob("*") if pattern.match(path.name) or is_draft(path.name))
    for folder in _FOLDERS:
        named = (path for path in (index / folder).glob("*") if re.fullmatch(_SHA, path.name) or is_draft(path.name))
        yield from (path for path in named if path.is_dir())
    yield from (path for path in (index / "publications").glob(".*") if is_draft(path.name))


def _named(index: Path, horizon: float) -> set[str]:
    """Return the paths that kept publications and young versions of any format name."""
    numbers = [path for path in (index / "publications").glob("*.json") if _NUMBER.match(path.name)]
    publications = [_json(path) for path in numbers]
    shas = {one["version"] for one in publications}
    shas |= {path.stem for path in (index / "versions").glob("*.json") if _modified(path) >= horizon}
    named = {f"reports/{one['report']}.json" for one in publications if one.get("report")}
    for sha in shas:
        version = _json(index / "versions" / f"{sha}.json")
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
    if not path.is_dir() or is_draft(path.name):
        return remove(path)
    manifest = _FOLDERS[path.parent.name]
    return remove(path, unless=lambda draft: (draft / manifest).stat().st_mtime >= horizon)
