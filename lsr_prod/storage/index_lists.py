"""Small files of an index, such as tombstones and takedowns: named by their content, in a folder or an object store."""

import hashlib
from pathlib import Path

from lsr_prod.errors import ArtifactError, DigestMismatchError
from lsr_prod.formats.digest import FileDigest
from lsr_prod.storage.store import Store, as_store
from lsr_prod.storage.transfer import object_name


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
