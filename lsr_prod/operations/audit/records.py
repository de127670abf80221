"""Records of an audit: an id as 128 bits of its sha256, where its row is, and what has to be equal; 49 bytes each."""

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

SOURCE, BAD, TABLE, BASE, INDEX, TAKEDOWN, QUARANTINE = range(7)
"""Kind of a record: a document of the source, a bad row of it, a row of the table, a row of the table version that the
index was built from, a document of the index, an id that is taken down, a row of the quarantine."""

RECORD = np.dtype(
    [
        ("high", "<u8"),  # first and second 8 bytes of the sha256 of the id
        ("low", "<u8"),
        ("kind", "u1"),
        ("file", "<i4"),  # number of the source file, part or shard
        ("position", "<i8"),  # in the file; number of the live row in a part, ordinal in a shard
        ("key", "<i4"),  # first 32 bits of the content hash
        ("stored", "<u8"),  # hash of the stored fields; 0: not compared
        ("source_file", "<i8"),  # key of the source file
    ]
)

Records = npt.NDArray[Any]
"""Array of ``RECORD``."""

_STRINGS = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids that a pass of an audit compares, and their partitions.

    The first 8 bytes of the hash choose the bucket of a document, so a sample is taken by the second 8 bytes: it has
    ids of every bucket.

    Attributes:
        share: one of how many ids is compared; 1: all.
        offset: which of them, below ``share``.
        partitions: partitions of all passes.
        first: first partition of this pass.
        count: partitions of this pass.
    """

    share: int = 1
    offset: int = 0
    partitions: int = 1
    first: int = 0
    count: int = 1

    def hashes(self, doc_id: str) -> tuple[int, int] | None:
        """Return the hash of an id; None if this pass does not compare it."""
        high, low = _STRINGS.unpack_from(hashlib.sha256(doc_id.encode()).digest())
        if low % self.share != self.offset:
            return None
        return (high, low) if self.first <= low // self.share % self.partitions < self.first + self.count else None

    def wants(self, doc_id: str) -> bool:
        """Return whether this pass compares an id."""
        return self.hashes(doc_id) is not None

    def split(self, blocks: Sequence[Records]) -> list[Records]:
        """Return the records of each partition of this pass."""
        records = np.concatenate([np.empty(0, RECORD), *blocks])
        places = (records["low"] // np.uint64(self.share) % np.uint64(self.partitions)).astype(np.int64) - self.first
        order = np.argsort(places, kind="stable")
        bounds = np.searchsorted(places[order], np.arange(1, self.count))
        return np.split(records[order], bounds)


def to_records(rows: Iterable[tuple[Any, ...]]) -> Records:
    """Return rows, with the values of ``RECORD`` in its order, as an array."""
    return np.array(list(rows), RECORD)


def stored_hash(values: Sequence[str | None]) -> int:
    """Return 64 bits of a hash of stored fields."""
    return int.from_bytes(hashlib.blake2b(json.dumps(values).encode(), digest_size=8).digest(), "little")
