"""Copy a version to the place that readers open: files first, then manifests, the version last.

Nothing that is there is written again, so that an upload that was killed goes on where it stopped, and a version that
shares files with an older one sends only the others.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.digest import FileDigest
from lsr_prod.formats.index import SHARD_FILE, IndexVersion
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.index_store import in_threads, object_name, read_bundle, read_version, stored_sizes, version_files

__all__ = ["Upload", "upload_version"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Upload:
    """What an upload did.

    Attributes:
        files: files that were sent.
        bytes: their size.
        files_there: files that were there already.
        bytes_there: their size.
        seconds: wall.
    """

    files: int
    bytes: int
    files_there: int
    bytes_there: int
    seconds: float


def upload_version(index: Path, version: str, target: Store, *, connections: int = 4) -> Upload:
    """Copy a version and everything it names; it is not published.

    Every file is held against its sha256 while it is sent. Run again, it sends what is missing.

    Args:
        index: the index folder.
        version: sha256 of a version of it.
        target: an object store or a folder; a folder becomes an index that readers map.
        connections: files that are sent at once; each needs about 50 MiB of memory.

    Raises:
        ArtifactError: a file of the version is missing or damaged, here or there.
        StorageError: the target fails; what was sent stays.
    """
    start = time.perf_counter()
    source = Store(str(index))
    manifest = read_version(source, version)
    files = version_files(manifest, read_bundle(source, manifest.bundle_digest))
    named = {object_name(target, file): file for file in files}
    there = _there(target, named)
    missing = {name: file for name, file in named.items() if name not in there}
    log.info("uploading", extra={"fields": {"version": version, "files": len(missing), "there": len(there)}})

    def send(file: FileDigest) -> int:
        path = index / file.path
        if not path.is_file():
            raise ArtifactError(f"{path} is missing; build the index again")
        target.put_file_new(object_name(target, file), path, file.sha256)
        return file.size

    sent = in_threads(send, missing.values(), connections)
    for name in [*_manifests(target, manifest), f"versions/{version}.json"]:
        target.put_new(name, (index / name).read_bytes())
    seconds = round(time.perf_counter() - start, 3)
    done = Upload(len(missing), sent, len(there), sum(file.size for file in there.values()), seconds)
    log.info("uploaded", extra={"fields": {"version": version, "target": target.uri, **asdict(done)}})
    return done


def _there(target: Store, named: Mapping[str, FileDigest]) -> dict[str, FileDigest]:
    """The files that the target has. One of another size is damaged: objects are written whole or not at all."""
    sizes = stored_sizes(target)
    there = {name: file for name, file in named.items() if name in sizes}
    for name, file in there.items():
        if sizes[name] != file.size:
            raise ArtifactError(
                f"{target.uri}/{name} has {sizes[name]} bytes, not the {file.size} of {file.path}; delete it, run again"
            )
    return there


def _manifests(target: Store, version: IndexVersion) -> list[str]:
    """Manifests but the version's own; in an object store a shard has none, for builders of one shard may differ."""
    shards = [] if is_remote(target.uri) else [f"shards/{shard.sha}/{SHARD_FILE}" for shard in version.shards]
    return [*shards, f"bundles/{version.bundle_digest}/{BUNDLE_FILE}"]
