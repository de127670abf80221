"""Delete what no publication that is kept names: old versions, and what killed attempts left behind.

Kept are the newest publications, those that were current since some time, and versions, shards and tombstones that are
young: a build may be about to publish them, and makes what it uses again young first. Only names that lsr_prod gives
are ever deleted. Ages are told by the clock of the disk.
"""

import json
import logging
import re
import shutil
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.index import SHARD_FILE
from lsr_prod.indexing.summaries import GarbageSummary
from lsr_prod.storage import Store
from lsr_prod.storage.local import is_draft

__all__ = ["collect_garbage"]

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"^\d{6,}\.json$")
_SHA = r"[0-9a-f]{64}"
_FILES = {"versions": re.compile(rf"^{_SHA}\.json$"), "tombstones": re.compile(rf"^{_SHA}\.npy$")}
_FILES["takedowns"] = _FILES["versions"]
_FOLDERS = {"shards": SHARD_FILE, "bundles": BUNDLE_FILE}


def collect_garbage(index: Path, *, keep: int, age_s: float) -> GarbageSummary:
    """Delete what nobody needs. Killed at any moment it leaves a whole index; what it was deleting goes an age later.

    Args:
        index: the index folder.
        keep: newest publications that are kept, 1 or more.
        age_s: seconds; nothing younger is deleted, nor what was current since then: longer than a build takes, and
            than a reader holds a version.

    Raises:
        ArtifactError: a version that is kept is missing or damaged; only publications were deleted.
    """
    horizon = _clock(index) - age_s
    publications = _old_publications(index, keep, horizon)
    for path in publications:
        path.unlink(missing_ok=True)
    # Listed before what is kept is read: what is published in between names no file of this list, or made it young.
    candidates = [path for path in _candidates(index) if _modified(path) < horizon]
    named = _named(index, horizon)
    objects = size = 0
    for path in candidates:
        if path.relative_to(index).as_posix() in named or not 0 < _modified(path) < horizon:
            continue
        try:
            size += _remove(path, horizon)
        except FileNotFoundError:
            continue  # another collection came first
        objects += 1
    collected = GarbageSummary(len(publications), objects, size)
    log.info("collected", extra={"fields": collected.to_json()})
    return collected


def _old_publications(index: Path, keep: int, horizon: float) -> list[Path]:
    """Publications beyond the newest, the oldest first; each was followed by another before the horizon."""
    found = sorted(
        (path for path in (index / "publications").glob("*.json") if _NUMBER.match(path.name)),
        key=lambda path: int(path.stem),
    )
    followed = list(pairwise(found))
    return [path for path, after in followed[: max(0, len(found) - keep)] if after.stat().st_mtime < horizon]


def _candidates(index: Path) -> Iterator[Path]:
    for folder, pattern in _FILES.items():
        yield from (path for path in (index / folder).glob("*") if pattern.match(path.name) or is_draft(path.name))
    for folder in _FOLDERS:
        named = (path for path in (index / folder).glob("*") if re.fullmatch(_SHA, path.name) or is_draft(path.name))
        yield from (path for path in named if path.is_dir())
    yield from (path for path in (index / "publications").glob(".*") if is_draft(path.name))


def _named(index: Path, horizon: float) -> set[str]:
    """What the kept publications and the young versions name, whatever their format."""
    numbers = [path for path in (index / "publications").glob("*.json") if _NUMBER.match(path.name)]
    shas = {_json(path)["version"] for path in numbers}
    shas |= {path.stem for path in (index / "versions").glob("*.json") if _modified(path) >= horizon}
    named = set()
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
    """When it was last taken up, seconds since 1970; 0 where it is gone. A draft is as young as its youngest file."""
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
    """Remove a file or a folder; a folder gets the name of a draft first, so that nobody finds half of it."""
    if not path.is_dir():
        size = path.stat().st_size
        path.unlink()
        return size
    draft = path
    if not is_draft(path.name):
        draft = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
        path.rename(draft)
        if (draft / _FOLDERS[path.parent.name]).stat().st_mtime >= horizon:
            draft.rename(path)  # somebody took it up since
            return 0
    size = sum(one.stat().st_size for one in draft.rglob("*") if one.is_file())
    shutil.rmtree(draft, ignore_errors=True)
    return size


def _clock(index: Path) -> float:
    """What time it is for the disk: this machine's clock may be days ahead."""
    name = f".clock.{uuid.uuid4().hex}.tmp"
    store = Store(str(index / "publications"))
    store.put_new(name, b"")
    modified = (index / "publications" / name).stat().st_mtime
    store.delete(name)
    return modified
