"""Fetch one file of a version: in pieces, held against its sha256, under its name only when it is whole."""

import hashlib
import os
from pathlib import Path

from lsr_prod.errors import ArtifactError, DigestMismatchError, StorageError
from lsr_prod.formats.digest import FileDigest
from lsr_prod.storage import Store
from lsr_prod.storage.cache_folder import PARTIAL
from lsr_prod.storage.index_store import object_name

__all__ = ["fetch_file"]

_PIECE = 8 << 20  # one request: the client's time limit is for each


def fetch_file(store: Store, file: FileDigest, folder: Path) -> int:
    """Fetch a file into ``folder`` as ``<sha256>``; only one process may do so at a time.

    What an earlier attempt fetched of it is used again.

    Returns:
        Bytes that were fetched.

    Raises:
        ArtifactError: the store does not have it.
        DigestMismatchError: what the store has is not the file; nothing of it stays.
        StorageError: the store or the disk fails; what came so far stays.
    """
    partial = folder / f"{file.sha256}{PARTIAL}"
    resumed = partial.exists()
    fetched = _continue(store, file, partial)
    if fetched is None and resumed:  # the piece may have been damaged here: the machine may have lost power
        fetched = _continue(store, file, partial)
    if fetched is None:
        raise DigestMismatchError(
            f"{store.uri}/{object_name(store, file)} is not {file.path} of the version, by size or sha256; "
            "delete it and upload the version again, or publish another version"
        )
    partial.chmod(0o444)
    partial.rename(folder / file.sha256)
    return fetched


def _continue(store: Store, file: FileDigest, partial: Path) -> int | None:
    """Fetch what is missing; None, and no file, if all of it is not what it should be."""
    fetched = 0
    digest = hashlib.sha256()
    with partial.open("a+b") as out:
        out.seek(0)
        while piece := out.read(1 << 20):
            digest.update(piece)
        while (at := out.tell()) < file.size:
            piece = _piece(store, file, at)
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


def _piece(store: Store, file: FileDigest, start: int) -> bytes:
    """The next bytes; empty if the object ends before."""
    name = object_name(store, file)
    try:
        return store.read_range(name, start, min(_PIECE, file.size - start))
    except FileNotFoundError as error:
        raise ArtifactError(
            f"{store.uri}/{name} ({file.path}) is missing; upload the version again, or publish another"
        ) from error
    except StorageError:
        size = store.size(name)
        if size is not None and size <= start:
            return b""
        raise
