"""Shards and bundles of an index that is being built, in a folder or an object store.

A shard is written to a private folder first: a draft next to its target, or scratch in ``$TMPDIR`` from which its files
are sent to the object store. It appears with its manifest, ``shards/<sha>/shard.json``, which is created if absent: the
first builder wins, and others get its manifest. Files without a manifest are garbage.

A file that an object store has already may be about to be deleted as garbage, so it is sent again unless it is young.
"""

import fcntl
import hashlib
import io
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Self

from lsr_prod.errors import ArtifactError, DigestMismatchError
from lsr_prod.logs import get_log
from lsr_prod.storage import disk, drafts, index_versions, location, remote, stores, transfer
from lsr_prod.storage.formats import bundle_format, index_format, pages, shard_format
from lsr_prod.storage.formats.digests import FileDigest, parsing, record_bytes

log = get_log(__name__)
_CONNECTIONS = 4  # files sent at once; each needs about 50 MiB of memory
_YOUNG_S = 3600.0  # age of a stored file that is not sent again; garbage collection deletes only older ones
_SCRATCH = "lsr_prod-shard-"


def read_list(index: stores.Store | Path, file: FileDigest) -> bytes:
    """Return the content of a file, compared with its digest."""
    store = stores.as_store(index)
    name = transfer.object_name(store, file)
    data = store.get(name)
    if data is None:
        raise ArtifactError(f"{store.uri}/{name} ({file.path}) is missing; publish another version")
    if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
        raise DigestMismatchError(
            f"{store.uri}/{name} ({file.path}) differs from its recorded sha256; publish another version"
        )
    return data


def write_list(index: stores.Store | Path, folder: str, ending: str, data: bytes) -> FileDigest:
    """Write a file named by its content, which is kept from garbage collection for now."""
    store = stores.as_store(index)
    sha = hashlib.sha256(data).hexdigest()
    file = FileDigest(f"{folder}/{sha}{ending}", sha, len(data))
    name = transfer.object_name(store, file)
    while not store.put_new(name, data):
        try:
            store.touch(name)
        except FileNotFoundError:
            continue  # a garbage collection was faster
        break
    return file


class ShardDraft:
    """A private folder for the files of one shard; a context manager that deletes it unless it was sealed."""

    def __init__(self, index: stores.Store | Path, sha: str) -> None:
        self._store = stores.as_store(index)
        self._sha = sha
        self._draft: drafts.Draft | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Create the folder."""
        if location.is_remote(self._store.uri):
            self.folder = self._stack.enter_context(_scratch())
        else:
            self._draft = self._stack.enter_context(drafts.Draft(Path(self._store.uri) / "shards" / self._sha))
            self.folder = self._draft.folder
        return self

    def __exit__(self, *raised: Any) -> None:
        """Delete what was not sealed, and scratch."""
        self._stack.__exit__(*raised)

    def seal(self, manifest: index_format.ShardManifest) -> index_format.ShardManifest:
        """Add the shard to the index, unless another builder was first.

        Returns:
            The manifest of the shard in the index, which is that of the first builder.
        """
        data = record_bytes(manifest.to_json())
        if self._draft is not None:
            drafts.write_file(self.folder / index_format.SHARD_FILE, data)
            return manifest if self._draft.seal() else index_versions.read_shard(self._draft.target)
        _send(self.folder, manifest.files, self._store)
        while not self._store.put_new(_manifest(self._sha), data):
            first = find_shard(self._store, self._sha)
            if first is not None:
                return first
        return manifest


@contextmanager
def _scratch() -> Iterator[Path]:
    """Create a temporary folder that is locked while it is used, and delete those of dead processes."""
    for left in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        _delete_unused(left)
    with disk.scratch_folder(prefix=_SCRATCH) as folder:
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the process, however it ends
            yield folder
        finally:
            os.close(lock)


def _delete_unused(folder: Path) -> None:
    try:
        if folder.stat().st_mtime > time.time() - _YOUNG_S:
            return
        lock = os.open(folder, os.O_RDONLY)
    except OSError:  # of another user, or deleted meanwhile
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(lock)


def find_shard(index: stores.Store | Path, sha: str) -> index_format.ShardManifest | None:
    """Return the manifest of a finished shard, kept from garbage collection for now; None if there is none.

    A shard of an object store that lacks files, which a garbage collection may have deleted meanwhile, is forgotten.
    """
    store = stores.as_store(index)
    if not location.is_remote(store.uri):
        folder = Path(store.uri) / "shards" / sha
        if not folder.is_dir():
            return None
        found = index_versions.read_shard(folder)
        store.touch(_manifest(sha))
        return found
    try:
        store.touch(_manifest(sha))
    except FileNotFoundError:
        return None
    found = _read_manifest(store, sha)
    if not _is_complete(store, found.files):
        log.warning("incomplete shard forgotten", extra={"fields": {"shard": sha, "index": store.uri}})
        store.delete(_manifest(sha))
        return None
    return found


def open_shard_file(index: stores.Store | Path, shard: index_format.ShardManifest, path: str) -> BinaryIO:
    """Return a mapped file of a shard as a file that is read in pieces; every page is verified when it is read."""
    store = stores.as_store(index)
    files = {file.path: replace(file, path=f"shards/{shard.sha}/{file.path}") for file in shard.files}
    if absent := {path, pages.PAGE_DIGESTS_FILE} - files.keys():
        raise ArtifactError(f"the manifest of shard {shard.sha} lacks {sorted(absent)[0]}; build the shard again")
    listed = files[pages.PAGE_DIGESTS_FILE]
    sizes = {name: file.size for name, file in files.items() if shard_format.is_mapped(name)}
    digests = pages.PageDigests(read_list(store, listed), sizes, f"{listed.path} of {store.uri}")
    name = transfer.object_name(store, files[path])
    place = f"{store.uri}/{name} ({path} of shard {shard.sha})"
    try:
        source = store.open_reader(name)
    except FileNotFoundError as error:
        raise ArtifactError(f"{place} is missing; publish another version") from error
    # Arrow reads small pieces: without a buffer, a page would be read and verified for each.
    return io.BufferedReader(pages.VerifiedFile(source, path, files[path].size, digests, place), pages.PAGE)


def add_bundle(index: stores.Store | Path, folder: Path) -> None:
    """Copy a bundle into the index, completely or not at all; one that is there is kept from garbage collection."""
    store, bundle = stores.as_store(index), bundle_format.Bundle.load(folder)
    name = f"bundles/{bundle.digest}/{bundle_format.BUNDLE_FILE}"
    if location.is_remote(store.uri):
        try:
            store.touch(name)
            if _is_complete(store, bundle.files):
                return
        except FileNotFoundError:
            pass
        _send(folder, bundle.files, store)
        store.put_new(name, bundle.to_bytes())
        return
    target = Path(store.uri) / "bundles" / bundle.digest
    if target.is_dir():
        bundle_format.Bundle.load(target, verify=True)
        store.touch(name)
        return
    with drafts.Draft(target) as draft:
        # Copy only files that the manifest names: the digest does not cover others.
        drafts.copy_files(folder, draft.folder, bundle.files)
        drafts.write_file(draft.folder / bundle_format.BUNDLE_FILE, (folder / bundle_format.BUNDLE_FILE).read_bytes())
        draft.seal()


def bundle_files(index: stores.Store | Path, digest: str, paths: tuple[str, ...], scratch: Path) -> Path:
    """Return a folder that has some small files of a bundle of the index."""
    store = stores.as_store(index)
    if not location.is_remote(store.uri):
        return Path(store.uri) / "bundles" / digest
    for file in index_versions.read_bundle(store, digest).files:
        if file.path in paths:
            drafts.write_file(scratch / file.path, read_list(store, file))
    return scratch


def _send(folder: Path, files: tuple[FileDigest, ...], store: stores.Store) -> None:
    """Send files that the object store lacks, and those that it has for longer than garbage is kept."""
    old = store.now("files") - _YOUNG_S

    def send(file: FileDigest) -> int:
        name = transfer.object_name(store, file)
        there = store.entry(name)
        if there is None or there.size != file.size or there.modified < old:
            store.put_file(name, folder / file.path, file.sha256)
        return file.size

    remote.in_threads(send, files, _CONNECTIONS)


def _read_manifest(store: stores.Store, sha: str) -> index_format.ShardManifest:
    name = _manifest(sha)
    with parsing(f"{store.uri}/{name} is damaged", "delete it and build the index again"):
        found = index_format.ShardManifest.from_json(json.loads(store.get(name) or b""))
    if found.sha != sha:
        raise DigestMismatchError(f"{store.uri}/{name} belongs to shard {found.sha}; delete it and build again")
    return found


def _is_complete(store: stores.Store, files: tuple[FileDigest, ...]) -> bool:
    return all(
        remote.in_threads(lambda file: store.size(transfer.object_name(store, file)) == file.size, files, _CONNECTIONS)
    )


def _manifest(sha: str) -> str:
    return f"shards/{sha}/{index_format.SHARD_FILE}"
