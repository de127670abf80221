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
from lsr_prod.storage.disk import scratch_folder
from lsr_prod.storage.drafts import Draft, copy_files, write_file
from lsr_prod.storage.formats.bundle import BUNDLE_FILE, Bundle
from lsr_prod.storage.formats.digest import FileDigest, record_bytes
from lsr_prod.storage.formats.index import SHARD_FILE, ShardManifest
from lsr_prod.storage.formats.pages import PAGE, PAGE_DIGESTS_FILE, PageDigests, VerifiedFile
from lsr_prod.storage.formats.shard import is_mapped
from lsr_prod.storage.index_versions import read_bundle, read_shard
from lsr_prod.storage.location import is_remote
from lsr_prod.storage.remote import in_threads
from lsr_prod.storage.store import Store, as_store
from lsr_prod.storage.transfer import object_name

log = get_log(__name__)
_CONNECTIONS = 4  # files sent at once; each needs about 50 MiB of memory
_YOUNG_S = 3600.0  # age of a stored file that is not sent again; garbage collection deletes only older ones
_SCRATCH = "lsr_prod-shard-"


def read_list(index: Store | Path, file: FileDigest) -> bytes:
    """Return the content of a file, compared with its digest."""
    store = as_store(index)
    name = object_name(store, file)
    data = store.get(name)
    if data is None:
        raise ArtifactError(f"{store.uri}/{name} ({file.path}) is missing; publish another version")
    if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
        raise DigestMismatchError(
            f"{store.uri}/{name} ({file.path}) differs from its recorded sha256; publish another version"
        )
    return data


def write_list(index: Store | Path, folder: str, ending: str, data: bytes) -> FileDigest:
    """Write a file named by its content, which is kept from garbage collection for now."""
    store = as_store(index)
    sha = hashlib.sha256(data).hexdigest()
    file = FileDigest(f"{folder}/{sha}{ending}", sha, len(data))
    name = object_name(store, file)
    while not store.put_new(name, data):
        try:
            store.touch(name)
        except FileNotFoundError:
            continue  # a garbage collection was faster
        break
    return file


class ShardDraft:
    """A private folder for the files of one shard; a context manager that deletes it unless it was sealed."""

    def __init__(self, index: Store | Path, sha: str) -> None:
        self._store = as_store(index)
        self._sha = sha
        self._draft: Draft | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Create the folder."""
        if is_remote(self._store.uri):
            self.folder = self._stack.enter_context(_scratch())
        else:
            self._draft = self._stack.enter_context(Draft(Path(self._store.uri) / "shards" / self._sha))
            self.folder = self._draft.folder
        return self

    def __exit__(self, *raised: Any) -> None:
        """Delete what was not sealed, and scratch."""
        self._stack.__exit__(*raised)

    def seal(self, manifest: ShardManifest) -> ShardManifest:
        """Add the shard to the index, unless another builder was first.

        Returns:
            The manifest of the shard in the index, which is that of the first builder.
        """
        data = record_bytes(manifest.to_json())
        if self._draft is not None:
            write_file(self.folder / SHARD_FILE, data)
            return manifest if self._draft.seal() else read_shard(self._draft.target)
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
    with scratch_folder(prefix=_SCRATCH) as folder:
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


def find_shard(index: Store | Path, sha: str) -> ShardManifest | None:
    """Return the manifest of a finished shard, kept from garbage collection for now; None if there is none.

    A shard of an object store that lacks files, which a garbage collection may have deleted meanwhile, is forgotten.
    """
    store = as_store(index)
    if not is_remote(store.uri):
        folder = Path(store.uri) / "shards" / sha
        if not folder.is_dir():
            return None
        found = read_shard(folder)
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


def open_shard_file(index: Store | Path, shard: ShardManifest, path: str) -> BinaryIO:
    """Return a mapped file of a shard as a file that is read in pieces; every page is verified when it is read."""
    store = as_store(index)
    files = {file.path: replace(file, path=f"shards/{shard.sha}/{file.path}") for file in shard.files}
    if absent := {path, PAGE_DIGESTS_FILE} - files.keys():
        raise ArtifactError(f"the manifest of shard {shard.sha} lacks {sorted(absent)[0]}; build the shard again")
    listed = files[PAGE_DIGESTS_FILE]
    sizes = {name: file.size for name, file in files.items() if is_mapped(name)}
    digests = PageDigests(read_list(store, listed), sizes, f"{listed.path} of {store.uri}")
    name = object_name(store, files[path])
    place = f"{store.uri}/{name} ({path} of shard {shard.sha})"
    try:
        source = store.open_reader(name)
    except FileNotFoundError as error:
        raise ArtifactError(f"{place} is missing; publish another version") from error
    # Arrow reads small pieces: without a buffer, a page would be read and verified for each.
    raw = VerifiedFile(source, path, files[path].size, digests, place)
    return io.BufferedReader(raw, PAGE)


def add_bundle(index: Store | Path, folder: Path) -> None:
    """Copy a bundle into the index, completely or not at all; one that is there is kept from garbage collection."""
    store, bundle = as_store(index), Bundle.load(folder)
    name = f"bundles/{bundle.digest}/{BUNDLE_FILE}"
    if is_remote(store.uri):
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
        Bundle.load(target, verify=True)
        store.touch(name)
        return
    with Draft(target) as draft:
        # Copy only files that the manifest names: the digest does not cover others.
        copy_files(folder, draft.folder, bundle.files)
        write_file(draft.folder / BUNDLE_FILE, (folder / BUNDLE_FILE).read_bytes())
        draft.seal()


def bundle_files(index: Store | Path, digest: str, paths: tuple[str, ...], scratch: Path) -> Path:
    """Return a folder that has some small files of a bundle of the index."""
    store = as_store(index)
    if not is_remote(store.uri):
        return Path(store.uri) / "bundles" / digest
    for file in read_bundle(store, digest).files:
        if file.path in paths:
            write_file(scratch / file.path, read_list(store, file))
    return scratch


def _send(folder: Path, files: tuple[FileDigest, ...], store: Store) -> None:
    """Send files that the object store lacks, and those that it has for longer than garbage is kept."""
    old = store.now("files") - _YOUNG_S

    def send(file: FileDigest) -> int:
        name = object_name(store, file)
        there = store.entry(name)
        if there is None or there.size != file.size or there.modified < old:
            store.put_file(name, folder / file.path, file.sha256)
        return file.size

    in_threads(send, files, _CONNECTIONS)


def _read_manifest(store: Store, sha: str) -> ShardManifest:
    name = _manifest(sha)
    try:
        found = ShardManifest.from_json(json.loads(store.get(name) or b""))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{store.uri}/{name} is damaged ({type(error).__name__}: {error}); delete it and build the index again"
        ) from error
    if found.sha != sha:
        raise DigestMismatchError(f"{store.uri}/{name} belongs to shard {found.sha}; delete it and build again")
    return found


def _is_complete(store: Store, files: tuple[FileDigest, ...]) -> bool:
    return all(in_threads(lambda file: store.size(object_name(store, file)) == file.size, files, _CONNECTIONS))


def _manifest(sha: str) -> str:
    return f"shards/{sha}/{SHARD_FILE}"
