"""Tombstones of a shard: the ordinals of documents that were deleted, superseded or taken down.

A version names one file of ordinals per shard, and one list of the ids that are taken down. Both are named by their
content and never change.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.cluster.workers import Workers
from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store, as_store, index_shards, is_remote
from lsr_prod.storage.formats import digests, pages, shard_format
from lsr_prod.storage.formats.index_format import IndexVersion, ShardManifest, Tombstones

Ordinals = np.typing.NDArray[np.uint32]


def as_ids(ids: Iterable[str]) -> pa.Array:
    """Return ids as the functions of this module take them: large_string, sorted, distinct."""
    return pa.array(sorted(set(ids)), pa.large_string())


def find_documents(index: Store | Path, shard: ShardManifest, ids: pa.Array) -> tuple[Ordinals, pa.Array]:
    """Return the rising ordinals of documents in a shard, and their ids in the same order.

    This is one pass over the ids of the shard, and needs memory for one batch of them: about 60 ns per document of a
    folder. Of an object store the ids are fetched and nothing else. What is read is compared with its digests.
    """
    ordinals, found = [np.empty(0, np.uint32)], [pa.array([], pa.large_string())]
    first = 0
    for batch in _batches_of_ids(index, shard) if len(ids) else ():
        here = np.flatnonzero(pc.is_in(batch, value_set=ids).to_numpy(zero_copy_only=False))
        ordinals.append((first + here).astype(np.uint32))
        found.append(batch.take(pa.array(here)))
        first += len(batch)
    return np.concatenate(ordinals), pa.concat_arrays(found)


def read_ids(index: Store | Path, shard: ShardManifest) -> pa.ChunkedArray:
    """Return the ids of a shard by ordinal."""
    return pa.chunked_array(list(_batches_of_ids(index, shard)), pa.large_string())


def _batches_of_ids(index: Store | Path, shard: ShardManifest) -> Iterator[pa.Array]:
    source = index_shards.open_shard_file(index, shard, shard_format.DOCUMENTS_FILE)
    name, documents = f"{shard_format.DOCUMENTS_FILE} of shard {shard.sha} in {as_store(index).uri}", 0
    with digests.parsing(f"{name} cannot be read", "publish another version"), pa.PythonFile(source, "r") as file:
        # Column 0 holds the ids; the stored fields are not read.
        reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=[0]))
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)["doc_id"]
            documents += len(batch)
            yield batch
    if documents != shard.documents:
        raise ArtifactError(f"{name} does not hold {shard.documents} documents; publish another version")


def hide_documents(
    index: Store | Path, shard: ShardManifest, known: Tombstones | None, ids: pa.Array
) -> Tombstones | None:
    """Add documents to the tombstones of a shard, and write the new tombstones.

    Returns:
        The tombstones, which are ``known`` if no document was added.
    """
    found, _ = find_documents(index, shard, ids)
    if not len(found):
        return known
    if known is None:
        return save_tombstones(index, found)
    before = load_tombstones(index, shard, known)
    union = np.union1d(before, found)
    return save_tombstones(index, union) if len(union) > len(before) else known


def hide_everywhere(
    index: Store | Path,
    shards: Sequence[ShardManifest],
    known: Sequence[Tombstones | None],
    ids: pa.Array,
    workers: Workers,
) -> tuple[Tombstones | None, ...]:
    """Add documents to the tombstones of every shard, see ``hide_documents``: one task per shard."""
    if not len(ids):
        return tuple(known)
    tasks = [(index, shard, one, ids) for shard, one in zip(shards, known, strict=True)]
    found = dict(workers.run(hide_documents, tasks, size=scan_size(index, shards)))
    return tuple(found[place] for place in range(len(shards)))


def scan_size(index: Store | Path, shards: Sequence[ShardManifest]) -> int:
    """Return for ``Workers.run`` how much work it is to find documents by id: bytes of parts that take as long."""
    documents = sum(shard.documents for shard in shards)
    return documents * (20 if is_remote(as_store(index).uri) else 1)  # ids are fetched, or mapped


def save_tombstones(index: Store | Path, ordinals: Ordinals) -> Tombstones | None:
    """Write rising ordinals to a file that is named by its content; return None if there are none."""
    if not len(ordinals):
        return None
    data = pages.npy_bytes(ordinals.astype("<u4"))
    return Tombstones(index_shards.write_list(index, "tombstones", ".npy", data), len(ordinals))


def load_tombstones(index: Store | Path, shard: ShardManifest, tombstones: Tombstones) -> Ordinals:
    """Read tombstones and verify their digest, their number and that the shard has the ordinals."""
    path = f"{tombstones.file.path} of {as_store(index).uri}"
    ordinals: Ordinals = pages.parse_npy(
        index_shards.read_list(index, tombstones.file), path, "publish another version"
    )
    rising = bool(np.all(ordinals[1:] > ordinals[:-1]))
    if ordinals.dtype != np.uint32 or not rising or len(ordinals) != tombstones.documents:
        raise ArtifactError(f"{path} is not a list of {tombstones.documents} rising ordinals; publish another version")
    if len(ordinals) and ordinals[-1] >= shard.documents:
        raise ArtifactError(f"{path} names documents that shard {shard.sha} does not have; publish another version")
    return ordinals


def save_takedowns(index: Store | Path, ids: Sequence[str]) -> digests.FileDigest | None:
    """Write the list of ids that are taken down; return None if there are none."""
    return index_shards.write_list(index, "takedowns", ".json", digests.record_bytes(sorted(set(ids)))) if ids else None


def load_takedowns(index: Store | Path, version: IndexVersion) -> list[str]:
    """Return the ids that are taken down, sorted."""
    if version.takedowns is None:
        return []
    ids = json.loads(index_shards.read_list(index, version.takedowns))
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise ArtifactError(
            f"{version.takedowns.path} of {as_store(index).uri} is not a list of ids; publish another version"
        )
    return ids
