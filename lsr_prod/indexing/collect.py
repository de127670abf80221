"""Delete what no publication that is kept names: old versions, and what killed attempts left behind.

Kept are the newest publications, those that were current since some time, and versions, shards and tombstones that are
young: a build may be about to publish them, and makes what it uses again young first. Only names that lsr_prod gives
are ever deleted. Ages are told by the clock of the disk.
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
from lsr_prod.indexing.summaries import GarbageSummary
from lsr_prod.storage import Store
from lsr_prod.storage.drafts import is_draft, remove

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
    store = Store(str(index))
    horizon = store.now("publications") - age_s
    publications = _old_publications(index, keep, horizon)
    for path in publications:
        store.delete(f"publications/{path.name}")
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
    """Delete a file or a folder and return its bytes; a folder that is used again since is kept."""
    if not path.is_dir() or is_draft(path.name):
        return remove(path)
    manifest = _FOLDERS[path.parent.name]
    return remove(path, unless=lambda draft: (draft / manifest).stat().st_mtime >= horizon)
