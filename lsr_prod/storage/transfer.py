"""Files of artifacts sent to a store and fetched from it, each compared with its sha256 on the way.

A local store keeps a file under its path. An object store keeps it as ``files/<sha256>``, so that nothing is sent
twice and two builders of one artifact never mix their files.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from lsr_prod.errors import ArtifactError, DigestMismatchError, StorageError
from lsr_prod.storage import location, remote, stores
from lsr_prod.storage.formats.digests import FileDigest

PARTIAL = ".part"
_PIECE = 8 << 20  # bytes of one request: the client's time limit is per request


def object_name(store: stores.Store, file: FileDigest) -> str:
    """Return the name of an artifact's file in the store."""
    return f"files/{file.sha256}" if location.is_remote(store.uri) else file.path


def stored_sizes(store: stores.Store) -> dict[str, int]:
    """Return the bytes of every stored file by object name: one listing."""
    return {entry.name: entry.size for entry in store.entries("files" if location.is_remote(store.uri) else "")}


def send_files(source: Path, files: Iterable[FileDigest], target: stores.Store, connections: int) -> None:
    """Send the files of a folder that the target lacks; run again after an interruption, it sends the rest."""
    named = {object_name(target, file): file for file in files}
    sizes = stored_sizes(target)
    for name in named.keys() & sizes.keys():
        _check_size(target, name, sizes[name], named[name])

    def send(file: FileDigest) -> int:
        path, name = source / file.path, object_name(target, file)
        if not path.is_file():
            raise ArtifactError(f"{path} is missing; build it again")
        if not target.put_file_new(name, path, file.sha256):  # another process sent it meanwhile
            _check_size(target, name, target.size(name), file)
        return file.size

    remote.in_threads(send, [file for name, file in named.items() if name not in sizes], connections)


def _check_size(target: stores.Store, name: str, size: int | None, file: FileDigest) -> None:
    """Refuse an object of another size: objects are written whole or not at all, so that it is damaged."""
    if size != file.size:
        raise DigestMismatchError(
            f"{target.uri}/{name} has {size} bytes, not the {file.size} of {file.path}; delete it, then run again"
        )


def fetch_file(store: stores.Store, file: FileDigest, folder: Path, *, remedy: str) -> int:
    """Fetch a file into ``folder`` as ``<sha256>``; only one process may do so at a time.

    Bytes that an earlier attempt fetched are used again.

    Returns:
        Bytes fetched.
    """
    partial = folder / f"{file.sha256}{PARTIAL}"
    resumed = partial.exists()
    if resumed:
        partial.chmod(0o644)  # an attempt that was killed before the rename left it read-only
    fetched = _resume(store, file, partial, remedy)
    if fetched is None and resumed:  # the kept bytes may be damaged: the machine may have lost power
        fetched = _resume(store, file, partial, remedy)
    if fetched is None:
        raise DigestMismatchError(
            f"{store.uri}/{object_name(store, file)} ({file.path}) has another size or sha256 than its manifest says; "
            f"delete it; {remedy}"
        )
    partial.chmod(0o444)
    partial.rename(folder / file.sha256)
    return fetched


def _resume(store: stores.Store, file: FileDigest, partial: Path, remedy: str) -> int | None:
    """Fetch the missing bytes; if the whole then has another sha256, remove the file and return None."""
    fetched = 0
    digest = hashlib.sha256()
    with partial.open("a+b") as out:
        out.seek(0)
        while piece := out.read(1 << 20):
            digest.update(piece)
        while (at := out.tell()) < file.size:
            piece = _read_piece(store, file, at, remedy)
            digest.update(piece)
            out.write(piece)
            fetched += len(piece)
            if not piece:
                break
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() == file.sha256:
        return fetched
    partial.unlink()
    return None


def _read_piece(store: stores.Store, file: FileDigest, start: int, remedy: str) -> bytes:
    """Return the next bytes; empty if the object ends before ``start``."""
    name = object_name(store, file)
    try:
        return store.read_range(name, start, min(_PIECE, file.size - start))
    except FileNotFoundError as error:
        raise ArtifactError(f"{store.uri}/{name} ({file.path}) is missing; {remedy}") from error
    except StorageError:
        size = store.size(name)
        if size is not None and size <= start:
            return b""
        raise
