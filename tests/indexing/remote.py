"""Indexes in an object store, for tests of indexing and search."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from lsr_prod.storage import Store
from lsr_prod.storage.formats.bundle_format import BUNDLE_FILE
from lsr_prod.storage.formats.digests import FileDigest, canonical_json, digest_path
from lsr_prod.storage.formats.index_format import SHARD_FILE, IndexVersion, Publication, Tombstones
from lsr_prod.storage.index_versions import read_bundle, read_version, version_files
from lsr_prod.storage.publications import create_publication, current_publication
from lsr_prod.storage.transfer import send_files
from tests.indexing.corpus import Doc, make_index
from tests.indexing.publishing import publish


def make_versions(index: Path, count: int, *, documents: int = 40, shards: int = 2) -> list[IndexVersion]:
    """Make versions that share only the bundle."""
    return [
        make_index(
            index,
            {f"d{n}-{i}": Doc({n: 9, 20 + i % 7: 1 + i}, f"text {n} {i}") for i in range(documents)},
            vocabulary_size=40,
            shards=shards,
        )
        for n in range(count)
    ]


def with_takedown(index: Path, version: IndexVersion) -> IndexVersion:
    """Write and return the version with a tombstone in its first shard and a list of takedowns."""
    tombstones = _put(index, "tombstones", "npy", np.zeros(1, np.uint32))
    takedowns = _put(index, "takedowns", "json", canonical_json(["gone"]))
    rest = (None,) * (len(version.shards) - 1)
    changed = replace(version, tombstones=(Tombstones(tombstones, 1), *rest), takedowns=takedowns)
    Store(str(index)).put_new(f"versions/{changed.sha}.json", canonical_json(changed.to_json()))
    return changed


def _put(index: Path, folder: str, ending: str, content: np.ndarray | bytes) -> FileDigest:
    draft = index / f"draft.{ending}"
    if isinstance(content, bytes):
        draft.write_bytes(content)
    else:
        np.save(draft, content)
    sha = digest_path(draft)
    target = index / folder / f"{sha}.{ending}"
    target.parent.mkdir(exist_ok=True)
    draft.rename(target)
    return FileDigest(f"{folder}/{target.name}", sha, target.stat().st_size)


def send(index: Path, version: IndexVersion, store: Store) -> Publication:
    """Publish a version in the index folder and upload it."""
    publish(index, version.sha)
    return upload_current(index, store)


def upload_version(index: Path, sha: str, target: Store) -> None:
    """Copy a version of an index folder, as a build in ``target`` writes it; the version is not published."""
    version = read_version(index, sha)
    if target.entry(f"versions/{sha}.json") is not None:
        target.touch(f"versions/{sha}.json")
    send_files(index, files_of(index, version), target, 4)
    shards = [f"shards/{shard.sha}/{SHARD_FILE}" for shard in version.shards]
    for name in [*shards, f"bundles/{version.bundle_digest}/{BUNDLE_FILE}", f"versions/{sha}.json"]:
        target.put_new(name, (index / name).read_bytes())


def upload_current(index: Path, target: Store) -> Publication:
    """Copy the current version of an index folder, and publish it under the same number."""
    publication = current_publication(index)
    upload_version(index, publication.version, target)
    create_publication(target, publication)
    return publication


def files_of(index: Path, version: IndexVersion) -> tuple[FileDigest, ...]:
    """Return the files of a version of a local index."""
    return version_files(version, read_bundle(Store(str(index)), version.bundle_digest))


def bytes_of(index: Path, *versions: IndexVersion) -> int:
    """Return the total bytes of distinct files of versions."""
    return sum({file.sha256: file.size for one in versions for file in files_of(index, one)}.values())


def overwrite(store: Store, name: str, data: bytes) -> None:
    """Replace an object, which lsr_prod never does."""
    store.delete(name)
    assert store.put_new(name, data)
