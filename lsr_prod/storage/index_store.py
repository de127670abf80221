"""An index in a ``Store``: its publications, its versions, and the objects that a version consists of.

A folder has the layout of ``formats.index``, for readers map its files. In an object store a file lies under its
content, so that two builders of one shard never mix their files and nothing is sent twice::

    files/<sha256>                 every file of shards, bundles, tombstones and takedowns
    bundles/<digest>/bundle.json   manifest of a bundle
    versions/<sha>.json            IndexVersion
    publications/000001.json       Publication

Whatever is read here may come from outside: it is held against its digest, and no name in it becomes a path unchecked.
"""

import json
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsr_prod.errors import ArtifactError, DigestMismatchError, PublicationError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.formats.digest import FileDigest, canonical_json, digest_json, verify_files
from lsr_prod.formats.index import SHARD_FILE, IndexVersion, Publication, publication_name
from lsr_prod.storage import Store, is_remote

__all__ = [
    "BundleManifest",
    "check_files",
    "in_threads",
    "object_name",
    "read_bundle",
    "read_head",
    "read_publication",
    "read_version",
    "stored_sizes",
    "version_files",
]

_PUBLICATION = re.compile(r"publications/(\d{6,})\.json")
_SHA = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class BundleManifest:
    """What an index's copy of ``bundle.json`` holds, held against the bundle's digest.

    Attributes:
        content: canonical JSON.
        files: the files that it names.
    """

    content: bytes
    files: tuple[FileDigest, ...]


def read_head(store: Store) -> Publication | None:
    """The publication with the largest number, or None where nothing is published.

    Raises:
        ArtifactError: it is no publication.
    """
    numbers = [int(match[1]) for name in store.names("publications") if (match := _PUBLICATION.fullmatch(name))]
    return read_publication(store, max(numbers)) if numbers else None


def read_publication(store: Store, number: int) -> Publication:
    """Publication ``number``.

    Raises:
        PublicationError: there is none of that number.
        ArtifactError: it is no publication.
    """
    name = f"publications/{publication_name(number)}"
    data = store.get(name)
    if data is None:
        raise PublicationError(f"{store.uri} has no publication {number}; give the number of one that is there")
    try:
        found = Publication.from_json(json.loads(data))
        if found.number != number:
            raise ValueError(f"it says that it is number {found.number}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{store.uri}/{name} is no publication ({error!r}); publish a version again") from error
    _check_sha("version", found.version, store)
    return found


def read_version(store: Store, sha: str) -> IndexVersion:
    """``versions/<sha>.json``, held against its name.

    Raises:
        ArtifactError: it is missing, or no version of this release.
        DigestMismatchError: its content does not have the digest of its name.
    """
    _check_sha("version", sha, store)
    value = _read_json(store, f"versions/{sha}.json", sha)
    try:
        version = IndexVersion.from_json(value)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{store.uri}/versions/{sha}.json is no index version ({error!r})") from error
    if version.sha != sha:
        raise ArtifactError(f"{store.uri}/versions/{sha}.json holds more than a version; it is not to be trusted")
    _check_sha("bundle", version.bundle_digest, store)
    return version


def read_bundle(store: Store, digest: str) -> BundleManifest:
    """``bundle.json`` of a bundle of the index, held against the bundle's digest.

    Raises:
        ArtifactError: the manifest is missing, or is none.
        DigestMismatchError: it does not have that digest.
    """
    name = f"bundles/{digest}/{BUNDLE_FILE}"
    value = _read_json(store, name, digest)
    try:
        return BundleManifest(canonical_json(value), tuple(FileDigest.from_json(file) for file in value["files"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{store.uri}/{name} is no bundle's manifest ({error!r})") from error


def version_files(version: IndexVersion, bundle: BundleManifest) -> tuple[FileDigest, ...]:
    """Every file that a version needs but the manifests; paths are those inside an index folder.

    Raises:
        ArtifactError: two files would lie at one path, or one inside another.
    """
    bundle_folder = f"bundles/{version.bundle_digest}"
    found = [_moved(file, f"{bundle_folder}/{file.path}") for file in bundle.files]
    for shard in version.shards:
        found += [_moved(file, f"shards/{shard.sha}/{file.path}") for file in shard.files]
    for one in version.tombstones:
        if one is not None:
            found.append(_moved(one.file, f"tombstones/{one.file.sha256}.npy"))
    if version.takedowns is not None:
        found.append(_moved(version.takedowns, f"takedowns/{version.takedowns.sha256}.json"))
    files = {file.path: file for file in found}
    manifests = {f"{bundle_folder}/{BUNDLE_FILE}", *(f"shards/{shard.sha}/{SHARD_FILE}" for shard in version.shards)}
    folders = {path[:at] for path in [*files, *manifests] for at, sign in enumerate(path) if sign == "/"}
    clashes = (files.keys() & (folders | manifests)) | {file.path for file in found if files[file.path] != file}
    if clashes or any("\0" in path for path in files):
        raise ArtifactError(f"version {version.sha} names {sorted(clashes)} twice; it is not to be trusted")
    return tuple(files.values())


def object_name(store: Store, file: FileDigest) -> str:
    """Where a file of a version lies in the store."""
    return f"files/{file.sha256}" if is_remote(store.uri) else file.path


def stored_sizes(store: Store) -> dict[str, int]:
    """Bytes of every file's object that is there, by name: one listing."""
    return {entry.name: entry.size for entry in store.entries("files" if is_remote(store.uri) else "")}


def check_files(store: Store, version: IndexVersion) -> None:
    """Refuse a version that is not whole: a folder's files are compared with their sha256, an object store's by size.

    Readers compare what they fetch with its sha256.

    Raises:
        ArtifactError: a file is missing.
        DigestMismatchError: a file is damaged.
    """
    files = version_files(version, read_bundle(store, version.bundle_digest))
    if not is_remote(store.uri):
        verify_files(Path(store.uri), files)
        return
    sizes = stored_sizes(store)
    for file in files:
        name = object_name(store, file)
        if name not in sizes:
            raise ArtifactError(f"{store.uri}/{name} ({file.path}) is missing; upload the version again")
        if sizes[name] != file.size:
            raise DigestMismatchError(
                f"{store.uri}/{name} ({file.path}) has {sizes[name]} bytes, not {file.size}; "
                "delete it, then upload the version again"
            )


def in_threads(work: Callable[[FileDigest], int], files: Iterable[FileDigest], connections: int) -> int:
    """Run ``work`` for every file on some threads; returns the sum. After an error nothing more is begun."""
    total = 0
    with ThreadPoolExecutor(connections, thread_name_prefix="lsr-files") as pool:
        futures = [pool.submit(work, file) for file in files]
        try:
            for future in as_completed(futures):
                total += future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return total


def _read_json(store: Store, name: str, digest: str) -> Any:
    data = store.get(name)
    if data is None:
        raise ArtifactError(f"{store.uri}/{name} is missing; publish another version")
    try:
        value = json.loads(data)
        same = digest_json(value) == digest
    except ValueError:  # no JSON, no UTF-8, or a number that JSON does not have
        same = False
    if not same:
        raise DigestMismatchError(f"{store.uri}/{name} does not have the digest of its name; publish another version")
    return value


def _moved(file: FileDigest, path: str) -> FileDigest:
    return FileDigest(path, file.sha256, file.size)


def _check_sha(kind: str, name: str, store: Store) -> None:
    if not _SHA.fullmatch(name):
        raise ArtifactError(f"{kind} name {name!r} in {store.uri} is no sha256; what names it is not to be trusted")
