"""Index versions in a store: their manifests and their files, and versions of object stores in the node cache.

A folder has the layout of ``formats.index``, because readers map its files. An object store has::

    files/<sha256>                 every file of shards, bundles, tombstones and takedowns
    bundles/<digest>/bundle.json   manifest of a bundle
    versions/<sha>.json            IndexVersion
    publications/000001.json       Publication

Content that is read here may come from outside: it is compared with its digest, and every name in it is checked before
it becomes a path. Functions take the folder of an index, or a ``Store``.
"""

import hashlib
import json
from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path

from lsr_prod.errors import ArtifactError, DigestMismatchError, StorageError
from lsr_prod.storage import drafts, location, stores, transfer
from lsr_prod.storage.formats.bundle_format import BUNDLE_FILE
from lsr_prod.storage.formats.digests import (
    FileDigest,
    digest_json,
    is_sha256,
    parsing,
    read_record,
    record_bytes,
    verify_files,
)
from lsr_prod.storage.formats.index_format import SHARD_FILE, IndexVersion, Publication, ShardManifest, publication_name
from lsr_prod.storage.formats.shard_format import TEXT_TERMS_FILE
from lsr_prod.storage.node_cache import Contents, NodeCache

_REBUILD = "run lsr-prod index build, which builds it again"
_REPUBLISH = "run lsr-prod index build, or publish another version"


@dataclass(frozen=True, slots=True)
class BundleManifest:
    """Manifest of a bundle in an index, compared with the bundle's digest."""

    content: bytes  # the file, canonical JSON
    files: tuple[FileDigest, ...]  # the files that it names


def read_version(index: stores.Store | Path, sha: str) -> IndexVersion:
    """Read ``versions/<sha>.json`` and compare it with its name."""
    store = stores.as_store(index)
    _check_sha("version", sha, store)
    name = f"versions/{sha}.json"
    data = _read(store, name)
    # The digest of the bytes, not of the value: a number can be written in more than one way.
    if hashlib.sha256(data.removesuffix(b"\n")).hexdigest() != sha:
        raise DigestMismatchError(f"{store.uri}/{name} does not have the digest of its name; publish another version")
    with parsing(f"{store.uri}/{name} is no index version", "publish another version"):
        version = IndexVersion.from_json(json.loads(data))
    if version.sha != sha:
        raise ArtifactError(f"{store.uri}/{name} has unknown fields; it cannot be trusted: publish another version")
    _check_sha("bundle", version.bundle_digest, store)
    return version


def read_bundle(index: stores.Store | Path, digest: str) -> BundleManifest:
    """Read ``bundle.json`` of a bundle in the index and compare it with the bundle's digest."""
    store, name = stores.as_store(index), f"bundles/{digest}/{BUNDLE_FILE}"
    data = _read(store, name)
    try:
        value = json.loads(data)
        same = digest_json(value) == digest
    except ValueError:  # no JSON, no UTF-8, or a number that JSON does not have
        same = False
    if not same:
        raise DigestMismatchError(f"{store.uri}/{name} does not have the digest of its name; publish another version")
    with parsing(f"{store.uri}/{name} is no manifest of a bundle", "publish another version"):
        return BundleManifest(record_bytes(value), tuple(FileDigest.from_json(file) for file in value["files"]))


def read_shard(folder: Path) -> ShardManifest:
    """Read the manifest in the folder of a shard."""
    path = folder / SHARD_FILE
    manifest = read_record(path, ShardManifest.from_json, f"remove {folder} and build the index again")
    if manifest.sha != folder.name:
        raise ArtifactError(f"{path} belongs to shard {manifest.sha}; remove {folder} and build the index again")
    return manifest


def verify_shard(index: Path, shard: ShardManifest) -> None:
    """Compare a shard with the manifest in its version: its own manifest and every file."""
    folder = index / "shards" / shard.sha
    if read_shard(folder) != shard:
        raise DigestMismatchError(f"{folder / SHARD_FILE} differs from the version; publish another version")
    verify_files(folder, shard.files)


def version_files(version: IndexVersion, bundle: BundleManifest) -> tuple[FileDigest, ...]:
    """Return every file of a version except the manifests, with paths inside an index folder."""
    bundle_folder = f"bundles/{version.bundle_digest}"
    found = [replace(file, path=f"{bundle_folder}/{file.path}") for file in bundle.files]
    for shard in version.shards:
        found += [replace(file, path=f"shards/{shard.sha}/{file.path}") for file in shard.files]
    for tombstones in version.tombstones:
        if tombstones is not None:
            found.append(replace(tombstones.file, path=f"tombstones/{tombstones.file.sha256}.npy"))
    if version.takedowns is not None:
        found.append(replace(version.takedowns, path=f"takedowns/{version.takedowns.sha256}.json"))
    files = {file.path: file for file in found}
    manifests = {f"{bundle_folder}/{BUNDLE_FILE}", *(f"shards/{shard.sha}/{SHARD_FILE}" for shard in version.shards)}
    folders = {path[:at] for path in [*files, *manifests] for at, sign in enumerate(path) if sign == "/"}
    clashes = (files.keys() & (folders | manifests)) | {file.path for file in found if files[file.path] != file}
    if clashes or any("\0" in path for path in files):
        raise ArtifactError(
            f"version {version.sha} names {sorted(clashes)} twice; it cannot be trusted: publish another version"
        )
    return tuple(files.values())


def check_files(index: stores.Store | Path, version: IndexVersion) -> None:
    """Refuse an incomplete version: files of a folder are compared with their sha256, objects with their size.

    Readers of an object store compare what they fetch with its sha256.
    """
    store = stores.as_store(index)
    files = version_files(version, read_bundle(store, version.bundle_digest))
    if not location.is_remote(store.uri):
        verify_files(Path(store.uri), files)
        return
    sizes = transfer.stored_sizes(store)
    for file in files:
        name = transfer.object_name(store, file)
        if name not in sizes:
            raise ArtifactError(f"{store.uri}/{name} ({file.path}) is missing; {_REBUILD}")
        if sizes[name] != file.size:
            raise DigestMismatchError(
                f"{store.uri}/{name} ({file.path}) has {sizes[name]} bytes, not {file.size}; delete it; {_REBUILD}"
            )


def fetch_version(
    cache: NodeCache,
    index: stores.Store,
    publication: Publication,
    *,
    shards: Container[int] | None = None,
    verify: bool = False,
) -> Path:
    """Return a version as a local index folder, which stays in the cache until ``cache.release``.

    A local index is not copied.

    Returns:
        The index folder; of shards that are not selected it has the term counts only.
    """
    if not location.is_remote(index.uri):
        return Path(index.location)
    selection = index.uri.rstrip("/") if shards is None else f"{index.uri.rstrip('/')} {shards!r}"
    source = hashlib.sha256(selection.encode()).hexdigest()[:16]
    place = cache.fetch(source, publication.version, lambda: _contents(index, publication.version, shards)).folder
    if not cache.writable:
        return place
    try:
        if verify:
            cache.repair(place, _contents(index, publication.version, shards))
        # The folder is an index with the publications for which it was fetched.
        name = publication_name(publication.number)
        drafts.create_file(place / "publications" / name, (record_bytes(publication.to_json()),))
    except BaseException as error:
        cache.release(place)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise StorageError(f"the cache {place} cannot be used ({error}); fix or free the disk") from error
        raise
    return place


def _contents(index: stores.Store, sha: str, shards: Container[int] | None) -> Contents:
    version = read_version(index, sha)
    bundle = read_bundle(index, version.bundle_digest)
    manifests = {
        f"bundles/{version.bundle_digest}/{BUNDLE_FILE}": bundle.content,
        f"versions/{sha}.json": record_bytes(version.to_json()),
        **{f"shards/{shard.sha}/{SHARD_FILE}": record_bytes(shard.to_json()) for shard in version.shards},
    }
    files = version_files(version, bundle)
    return Contents(index, files if shards is None else _selected(version, files, shards), _REPUBLISH, manifests)


def _selected(version: IndexVersion, files: tuple[FileDigest, ...], shards: Container[int]) -> tuple[FileDigest, ...]:
    """Return the files without those that only readers of other shards need; all readers weigh terms alike."""
    wanted = {shard.sha for number, shard in enumerate(version.shards) if number in shards}
    return tuple(
        file
        for file in files
        if not file.path.startswith("shards/")
        or file.path.split("/")[1] in wanted
        or file.path.endswith(f"/{TEXT_TERMS_FILE}")
    )


def _read(store: stores.Store, name: str) -> bytes:
    data = store.get(name)
    if data is None:
        raise ArtifactError(f"{store.uri}/{name} is missing; publish another version")
    return data


def _check_sha(kind: str, name: str, store: stores.Store) -> None:
    if not is_sha256(name):
        raise ArtifactError(
            f"{kind} name {name!r} in {store.uri} is no sha256; it cannot be trusted: publish another version"
        )
