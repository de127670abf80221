"""What stands in a shard and must not be found: documents that were deleted, replaced or taken down.

A version names one file of ordinals a shard, and one list of the ids that were taken down. Both are named by their
content and never changed.
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
from lsr_prod.formats.digest import FileDigest, canonical_json, verify_files
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
    """Ids as the functions here take them: large_string, sorted, each once."""
    return pa.array(sorted(set(ids)), pa.large_string())


def find_ordinals(folder: Path, manifest: ShardManifest, ids: pa.Array) -> Ordinals:
    """Where documents stand in a shard, in whatever order the shard keeps them.

    One pass over the mapped ids of the shard, which costs about 60 ns a document and needs no memory for them.

    Args:
        folder: of the shard.
        manifest: of the shard.
        ids: large_string; ids that the shard does not have are left out.

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
    """The ids of a shard by ordinal, mapped.

    Raises:
        ArtifactError: ``docs.arrow`` cannot be read.
    """
    path = folder / DOCUMENTS_FILE
    try:
        # The first column: stored fields are not touched.
        options = pa.ipc.IpcReadOptions(included_fields=[0])
        ids = pa.ipc.open_file(pa.memory_map(str(path)), options=options).read_all()["doc_id"]
    except (pa.ArrowInvalid, OSError, KeyError) as error:
        raise ArtifactError(f"{path} cannot be read ({error}); publish another version") from error
    if len(ids) != manifest.documents:
        raise ArtifactError(f"{path} does not hold {manifest.documents} documents; publish another version")
    return ids


def hide_documents(index: Path, shard: ShardManifest, there: Tombstones | None, ids: pa.Array) -> Tombstones | None:
    """The tombstones of a shard with those of some documents more, written where they are new.

    Args:
        index: the index folder.
        shard: the shard.
        there: its tombstones so far.
        ids: large_string; ids that the shard does not have are left out.
    """
    found = find_ordinals(index / "shards" / shard.sha, shard, ids)
    if not len(found):
        return there
    if there is None:
        return save_tombstones(index, found)
    before = load_tombstones(index, shard, there)
    union = np.union1d(before, found)
    return save_tombstones(index, union) if len(union) > len(before) else there


def save_tombstones(index: Path, ordinals: Ordinals) -> Tombstones | None:
    """Write ordinals, rising, under the name of their content; None for none."""
    if not len(ordinals):
        return None
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, ordinals.astype("<u4"), version=(1, 0), allow_pickle=False)
    return Tombstones(_save(index, "tombstones", ".npy", buffer.getvalue()), len(ordinals))


def load_tombstones(index: Path, shard: ShardManifest, tombstones: Tombstones) -> Ordinals:
    """The ordinals, held against their digest, their count and the shard.

    Raises:
        ArtifactError: the file is missing or does not fit the shard.
        DigestMismatchError: it is damaged.
    """
    verify_files(index, [tombstones.file])
    path = index / tombstones.file.path
    ordinals: Ordinals = np.load(path, allow_pickle=False)
    rising = ordinals.ndim == 1 and bool(np.all(ordinals[1:] > ordinals[:-1]))
    if ordinals.dtype != np.uint32 or not rising or len(ordinals) != tombstones.documents:
        raise ArtifactError(f"{path} is no list of {tombstones.documents} rising ordinals; publish another version")
    if len(ordinals) and ordinals[-1] >= shard.documents:
        raise ArtifactError(f"{path} names documents that shard {shard.sha} does not have; publish another version")
    return ordinals


def save_takedowns(index: Path, ids: Sequence[str]) -> FileDigest | None:
    """Write the list of ids that must never be found; None for none."""
    return _save(index, "takedowns", ".json", canonical_json(sorted(set(ids))) + b"\n") if ids else None


def load_takedowns(index: Path, version: IndexVersion) -> list[str]:
    """The ids that were taken down, sorted.

    Raises:
        ArtifactError: the list is missing, or no list of ids.
        DigestMismatchError: it is damaged.
    """
    if version.takedowns is None:
        return []
    verify_files(index, [version.takedowns])
    path = index / version.takedowns.path
    ids = json.loads(path.read_bytes())
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise ArtifactError(f"{path} is no list of ids; publish another version")
    return ids


def _save(index: Path, folder: str, ending: str, data: bytes) -> FileDigest:
    sha = hashlib.sha256(data).hexdigest()
    file = FileDigest(f"{folder}/{sha}{ending}", sha, len(data))
    store = Store(str(index))
    while not store.put_new(file.path, data):
        try:
            store.refresh(file.path)  # a collection must not take for garbage what a version is about to name
        except FileNotFoundError:
            continue  # it just did
        break
    return file
