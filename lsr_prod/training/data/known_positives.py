"""Known positives: the pairs of query and positive of all rows whose query has several positives, by key.

Tasks of Ray write the table, each for one range of keys: a task reads two columns of all parts, so that its memory
depends on the size of a range and not on the rows of the set. A file is sorted by query and positive.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lsr_prod.storage import Store, disk, transfer
from lsr_prod.storage.formats.digests import FileDigest, digest_path

KEY_COLUMNS = ("query_key", "positive_key")
MOST_POSITIVES = 4096
"""Positives that are looked up per query, those with the smallest keys."""

_ROWS_OF_RANGE = 1 << 23  # about 130 MB of keys, and as much again while they are sorted
_SCHEMA = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in KEY_COLUMNS])

Keys = np.typing.NDArray[np.int64]
_EMPTY = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Counts of one range of keys."""

    queries: int  # different queries
    positives: int  # different positives
    file: FileDigest | None  # the pairs of queries with several positives; None: there is no such query

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "KeyRange":
        """Parse the JSON form of ``asdict``."""
        return cls(**{**value, "file": value["file"] and FileDigest.from_json(value["file"])})


def key_ranges(rows: int) -> list[tuple[int, int]]:
    """Return ranges that cover all keys, each with about as many rows: first and last key, inclusive."""
    count = max(1, -(-rows // _ROWS_OF_RANGE))
    bounds = [-(2**63) + (2**64 * number) // count for number in range(count + 1)]
    return [(first, last - 1) for first, last in pairwise(bounds)]


def write_key_range(store: Store, parts: Sequence[FileDigest], first: int, last: int) -> KeyRange:
    """Write the known positives of the queries of a range of keys, and count the queries and positives in it."""
    queries, positives, seen = [_EMPTY], [_EMPTY], [_EMPTY]
    for of_queries, of_positives in _keys_of_parts(store, parts):
        inside = (of_queries >= first) & (of_queries <= last)
        queries.append(of_queries[inside])
        positives.append(of_positives[inside])
        seen.append(np.unique(of_positives[(of_positives >= first) & (of_positives <= last)]))
    of_queries, of_positives = np.concatenate(queries), np.concatenate(positives)
    pairs = different_pairs(of_queries, of_positives)
    different, counts = np.unique(of_queries[pairs], return_counts=True)
    several = pairs[np.repeat(counts > 1, counts)]
    file = _put(store, [of_queries[several], of_positives[several]], first) if len(several) else None
    return KeyRange(len(different), len(np.unique(np.concatenate(seen))), file)


class KnownTable:
    """Look-up in the mapped files of the known positives."""

    def __init__(self, files: Sequence[Path]) -> None:
        tables = [pa.ipc.open_file(pa.memory_map(str(file))).read_all() for file in files]
        self._ranges = [[table[name].chunk(0).to_numpy() for name in KEY_COLUMNS] for table in tables]

    def look_up(self, queries: Keys) -> tuple[Keys, Keys]:
        """Return the positives of queries with several positives, at most ``MOST_POSITIVES`` per query.

        Returned are, for each positive, the number of its query among ``queries`` and its key, two arrays int64 [t].
        """
        owners, positives = [_EMPTY], [_EMPTY]
        for of_queries, of_positives in self._ranges:
            start = np.searchsorted(of_queries, queries, side="left")
            found = np.searchsorted(of_queries, queries, side="right") - start
            found = np.minimum(found, MOST_POSITIVES)
            owner = np.repeat(np.arange(len(queries)), found)
            place = np.arange(int(found.sum())) - np.repeat(np.cumsum(found) - found, found)
            owners.append(owner)
            positives.append(of_positives[start[owner] + place])
        return np.concatenate(owners), np.concatenate(positives)


def _keys_of_parts(store: Store, parts: Sequence[FileDigest]) -> Iterator[tuple[Keys, Keys]]:
    """Yield the keys of queries and positives of each record batch; no other column is read."""
    for part in parts:
        with store.open_reader(transfer.object_name(store, part)) as source, pa.PythonFile(source, mode="r") as file:
            schema = pa.ipc.open_file(file).schema
            options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in KEY_COLUMNS])
            reader = pa.ipc.open_file(file, options=options)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                yield batch.column(KEY_COLUMNS[0]).to_numpy(), batch.column(KEY_COLUMNS[1]).to_numpy()


def different_pairs(queries: np.typing.NDArray[Any], positives: np.typing.NDArray[Any]) -> np.typing.NDArray[np.intp]:
    """Return the places of the pairs sorted by query, then positive, each pair once."""
    order = np.lexsort((positives, queries))
    queries, positives = queries[order], positives[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (queries[1:] != queries[:-1]) | (positives[1:] != positives[:-1])
    return order[new]


def _put(store: Store, pairs: list[Keys], first: int) -> FileDigest:
    with disk.scratch_folder(prefix="lsr_prod-keys-") as folder:
        path = folder / "keys.arrow"
        with pa.ipc.new_file(str(path), _SCHEMA) as writer:
            writer.write_batch(pa.record_batch([pa.array(keys) for keys in pairs], schema=_SCHEMA))
        return put_arrow(store, path, f"positives-{first & (2**64 - 1):016x}")


def put_arrow(store: Store, path: Path, stem: str) -> FileDigest:
    """Store an Arrow file under a name that contains its digest."""
    sha256 = digest_path(path)
    file = FileDigest(f"{stem}-{sha256[:16]}.arrow", sha256, path.stat().st_size)
    store.put_file_new(transfer.object_name(store, file), path, sha256)
    return file
