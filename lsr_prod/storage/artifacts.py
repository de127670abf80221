"""Immutable folders, such as models and training sets, in a store: visible whole or not at all.

::

    <name>.json                manifest: path, sha256 and size of every file; written last, never replaced
    <name>/                    in a local store: the folder as it was put
    <name>/files/<sha256>      in an object store: every file under the name of its content

Artifacts of an object store are fetched into the node cache of the user, once for all processes of the node.
"""

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from lsr_prod.errors import ArtifactError, ConfigError, DigestMismatchError, FormatVersionError, StorageError
from lsr_prod.logs import get_log
from lsr_prod.storage import cache_folder, disk, drafts, location, node_cache, stores, transfer
from lsr_prod.storage.formats.digests import FileDigest, digest_folder, digest_json, parsing, record_bytes, verify_files

log = get_log(__name__)

_FORMAT = 1
_CONNECTIONS = 4  # files sent or fetched at once; each needs about 50 MiB of memory
_SOURCE = "artifacts"  # group in the node cache: manifests name artifacts of all stores by content


def user_cache() -> Path:
    """Return the folder of the node cache: ``$LSR_PROD_CACHE``, else ``$XDG_CACHE_HOME/lsr_prod``."""
    if given := os.environ.get("LSR_PROD_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or disk.home_folder("LSR_PROD_CACHE") / ".cache") / "lsr_prod"


def user_quota() -> int | None:
    """Return the quota of the node cache in bytes, ``$LSR_PROD_CACHE_BYTES``; None: the disk is the limit."""
    given = os.environ.get("LSR_PROD_CACHE_BYTES")
    if not given:
        return None
    if not given.isdecimal() or not int(given):
        raise ConfigError("LSR_PROD_CACHE_BYTES", f"{given!r} is no number of bytes", "give a whole number above 0")
    return int(given)


def has_artifact(store: stores.Store, name: str) -> bool:
    """Return whether an artifact was put completely."""
    return store.size(f"{name}.json") is not None


def put_artifact(store: stores.Store, name: str, folder: Path) -> None:
    """Copy a folder into a store; a repeated call resumes an interrupted one, and leaves a finished one as it is."""
    files = digest_folder(folder)
    if not files:
        raise ArtifactError(f"{folder} has no files; it cannot be stored as {name}")
    start = time.perf_counter()
    if not has_artifact(store, name):
        if location.is_remote(store.uri):
            transfer.send_files(folder, files, store.child(name), _CONNECTIONS)
        else:
            _copy(folder, files, Path(store.child(name).location))
    if not put_manifest(store, name, files):
        raise ArtifactError(f"{store.uri}/{name} has other content than {folder}; delete it with its manifest")
    seconds = round(time.perf_counter() - start, 3)
    fields = {"name": name, "files": len(files), "bytes": sum(file.size for file in files), "seconds": seconds}
    log.info("artifact put", extra={"fields": fields})


def put_manifest(store: stores.Store, name: str, files: Iterable[FileDigest]) -> bool:
    """Seal an artifact whose files are in the store already, under ``object_name`` of ``store.child(name)``.

    Returns:
        Whether the store has this manifest now; False: the name has another one.
    """
    manifest = record_bytes({"format": _FORMAT, "files": [file.to_json() for file in files]})
    return store.put_new(f"{name}.json", manifest) or store.get(f"{name}.json") == manifest


def fetch_artifact(store: stores.Store, name: str, *, verify: bool = True, cache: Path | None = None) -> Path:
    """Return an artifact as a local folder, which must not be changed.

    Returns:
        The folder of a local store itself; a copy of a remote one, whose files cannot be written.
    """
    manifest, files = _read_manifest(store, name)
    if not location.is_remote(store.uri):
        place = Path(store.child(name).location)
        _check(place, files, verify, f"delete {place} and its manifest, then run again")
        return place
    cache = (cache or user_cache()).absolute()
    nodes, digest = _node_cache(cache, user_quota()), digest_json(manifest)
    place = nodes.place(_SOURCE, digest)
    if place.is_dir() and not nodes.writable:
        _check(place, files, verify, f"replace {cache}, which cannot be written")
        return place
    make_private(cache)
    source = store.child(name)
    contents = node_cache.Contents(source, files, f"delete {source.uri} and {source.uri}.json, then run again")
    cached = nodes.fetch(_SOURCE, digest, lambda: contents)
    nodes.keep_one_use(cached.folder)  # until the process ends
    rest = tuple(file for file in files if file not in cached.fetched)
    nodes.repair(cached.folder, replace(contents, files=rest), verify=verify)
    return cached.folder


def read_artifact_file(store: stores.Store, name: str, path: str) -> bytes | None:
    """Return the content of one small file of an artifact without fetching the rest; None if it has no such file."""
    files = {file.path: file for file in _read_manifest(store, name)[1]}
    if path not in files:
        return None
    target = store.child(name)
    data = target.get(transfer.object_name(target, files[path]))
    if data is None:
        raise ArtifactError(f"{target.uri} lacks its {path}; delete it and its manifest, then run again")
    if hashlib.sha256(data).hexdigest() != files[path].sha256:
        raise DigestMismatchError(f"{path} of {target.uri} differs from its recorded sha256; delete it, then run again")
    return data


@lru_cache
def _node_cache(folder: Path, max_bytes: int | None) -> node_cache.NodeCache:
    return node_cache.NodeCache(folder, max_bytes, connections=_CONNECTIONS)


def make_private(cache: Path) -> None:
    """Create the folder of a cache for this user only: its content is trusted later.

    The mode of a folder of root, such as a volume of a container, is left as it is: only its owner may change it.
    """
    with cache_folder.cache_errors(cache):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        found, user = cache.stat(), os.geteuid()
        private = found.st_uid in (0, user) and not found.st_mode & stat.S_ISVTX
        if private and found.st_uid == user:
            cache.chmod(0o700)
    if not private:
        raise StorageError(
            f"the cache {cache} belongs to another user, or every user may write into it, so that its content cannot "
            "be trusted; set LSR_PROD_CACHE to a folder of your own"
        )


def _copy(folder: Path, files: tuple[FileDigest, ...], place: Path) -> None:
    try:
        with drafts.Draft(place) as draft:
            drafts.copy_files(folder, draft.folder, files)
            if not draft.seal():  # another process was quicker, or was killed before it wrote the manifest
                verify_files(place, files)
    except (ArtifactError, StorageError):
        raise
    except OSError as error:
        raise StorageError(f"{place} could not be written ({error}); fix the disk, then run again") from error


def _read_manifest(store: stores.Store, name: str) -> tuple[Any, tuple[FileDigest, ...]]:
    """Return a manifest, and the files that it names."""
    data, where = store.get(f"{name}.json"), f"{store.uri}/{name}.json"
    if data is None:
        raise ArtifactError(f"{store.uri} has no {name}; give the URI that a job wrote to, or run that job again")
    with parsing(f"{where} is damaged", "delete it, then run again"):
        manifest = json.loads(data)
        if manifest["format"] != _FORMAT:
            raise FormatVersionError(f"{where} has format {manifest['format']}; this release reads {_FORMAT}")
        files = tuple(FileDigest.from_json(file) for file in manifest["files"])
    if not files or len({file.path for file in files}) != len(files):
        raise ArtifactError(f"{where} names no file, or one file twice; it cannot be trusted: delete it")
    return manifest, files


def _check(place: Path, files: Iterable[FileDigest], verify: bool, remedy: str) -> None:
    try:
        if verify:
            verify_files(place, files)
            return
    except ArtifactError as error:
        raise type(error)(f"{error}; {remedy}") from error
    for file in files:
        path = place / file.path
        if not path.is_file() or path.stat().st_size != file.size:
            raise ArtifactError(f"{path} is missing, or does not have {file.size} bytes; {remedy}")
