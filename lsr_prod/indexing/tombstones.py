"""Tombstones of a shard: the ordinals of documents that were deleted, superseded or taken down.

A version names one file of ordinals per shard, and one list of the ids that are taken down. Both are named by their
content and never change.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.digest import FileDigest, record_bytes, verify_files
from lsr_prod.formats.index import IndexVersion, ShardManifest, Tombstones
from lsr_prod.formats.shard import DOCUMENTS_FILE
from lsr_prod.storage import Store

__all__ = [
    "as_ids",
    "find_ordinals",
    "hide_documents",
    "load_takedowns",
    "load_tombstones",
    "read_ids",
    "save_takedowns",
    "save_tombstones",
]

Ordinals = npt.NDArray[np.uint32]


def as_ids(ids: Iterable[str]) -> pa.Array:
    """Return ids as the functions of this module take them: large_string, sorted, distinct."""
    return pa.array(sorted(set(ids)), pa.large_string())


def find_ordinals(folder: Path, manifest: ShardManifest, ids: pa.Array) -> Ordinals:
    """Return the ordinals of documents in a shard.

    This is one pass over the mapped ids of the shard: about 60 ns per document, and no memory for the ids.

    Args:
        folder: folder of the shard.
        manifest: manifest of the shard.
        ids: large_string; ids that are not in the shard are ignored.

    Returns:
        uint32 [n], rising.

    Raises:
        ArtifactError: ``docs.arrow`` cannot be read.
    """
    if not len(ids):
        return np.empty(0, np.uint32)
    found = pc.is_in(read_ids(folder, manifest), value_set=ids)
    return np.flatnonzero(found.to_numpy()).astype(np.uint32)


def read_ids(folder: Path, manifest: ShardManifest) -> pa.ChunkedArray:
    """Return the ids of a shard by ordinal, mapped.

    Raises:
        ArtifactError: ``docs.arrow`` cannot be read.
    """
    path = folder / DOCUMENTS_FILE
    try:
        # Column 0 holds the ids; the stored fields are not read.
        options = pa.ipc.IpcReadOptions(included_fields=[0])
        ids = pa.ipc.open_file(pa.memory_map(str(path)), options=options).read_all()["doc_id"]
    except (pa.ArrowInvalid, OSError, KeyError) as error:
        raise ArtifactError(f"{path} cannot be read ({error}); publish another version") from error
    if len(ids) != manifest.documents:
        raise ArtifactError(f"{path} does not hold {manifest.documents} documents; publish another version")
    return ids


def hide_documents(index: Path, shard: ShardManifest, known: Tombstones | None, ids: pa.Array) -> Tombstones | None:
    """Add documents to the tombstones of a shard, and write the new tombstones.

    Args:
        index: the index folder.
        shard: manifest of the shard.
        known: its tombstones so far; None if it has none.
        ids: large_string; ids that are not in the shard are ignored.

    Returns:
        The tombstones, which are ``known`` if no document was added.
    """
    found = find_ordinals(index / "shards" / shard.sha, shard, ids)
    if not len(found):
        return known
    if known is None:
        return save_tombstones(index, found)
    before = load_tombstones(index, shard, known)
    union = np.union1d(before, found)
    return save_tombstones(index, union) if len(union) > len(before) else known


def save_tombstones(index: Path, ordinals: Ordinals) -> Tombstones | None:
    """Write rising ordinals to a file that is named by its content; return None if there are none."""
    if not len(ordinals):
        return None
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, ordinals.astype("<u4"), version=(1, 0), allow_pickle=False)
    return Tombstones(_save(index, "tombstones", ".npy", buffer.getvalue()), len(ordinals))


def load_tombstones(index: Path, shard: ShardManifest, tombstones: Tombstones) -> Ordinals:
    """Read tombstones and verify their digest, their number and that the shard has the ordinals.

    Raises:
        ArtifactError: the file is missing or does not fit the shard.
        DigestMismatchError: the file is damaged.
    """
    verify_files(index, [tombstones.file])
    path = index / tombstones.file.path
    ordinals: Ordinals = np.load(path, allow_pickle=False)
    rising = ordinals.ndim == 1 and bool(np.all(ordinals[1:] > ordinals[:-1]))
    if ordinals.dtype != np.uint32 or not rising or len(ordinals) != tombstones.documents:
        raise ArtifactError(f"{path} is not a list of {tombstones.documents} rising ordinals; publish another version")
    if len(ordinals) and ordinals[-1] >= shard.documents:
        raise ArtifactError(f"{path} names documents that shard {shard.sha} does not have; publish another version")
    return ordinals


def save_takedowns(index: Path, ids: Sequence[str]) -> FileDigest | None:
    """Write the list of ids that are taken down; return None if there are none."""
    return _save(index, "takedowns", ".json", record_bytes(sorted(set(ids)))) if ids else None


def load_takedowns(index: Path, version: IndexVersion) -> list[str]:
    """Return the ids that are taken down, sorted.

    Raises:
        ArtifactError: the file is missing or does not hold a list of ids.
        DigestMismatchError: the file is damaged.
    """
    if version.takedowns is None:
        return []
    verify_files(index, [version.takedowns])
    path = index / version.takedowns.path
    ids = json.loads(path.read_bytes())
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise ArtifactError(f"{path} is not a list of ids; publish another version")
    return ids


def _save(index: Path, folder: str, ending: str, data: bytes) -> FileDigest:
    sha = hashlib.sha256(data).hexdigest()
    file = FileDigest(f"{folder}/{sha}{ending}", sha, len(data))
    store = Store(str(index))
    while not store.put_new(file.path, data):
        try:
            store.touch(file.path)  # a garbage collection must not delete a file that a new version names
        except FileNotFoundError:
            continue  # the garbage collection was faster
        break
    return file
