"""Compare the records of one partition: the rows of each id in the source with those in the table and in the index."""

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lsr_prod.storage.formats.stored_values import value_to_json

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
Records = np.typing.NDArray[Any]
"""Array of ``RECORD``."""
_STRINGS = struct.Struct("<QQ")
EXAMPLES = 10
"""Examples of each kind of finding."""
Bools = np.typing.NDArray[np.bool_]
Ints = np.typing.NDArray[np.int64]
Finding = tuple[Bools, Ints]
"""Which ids, [count], and the record to show of each, [count]."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids that a pass of an audit compares, and their partitions.

    The first 8 bytes of the hash choose the bucket of a document, so a sample is taken by the second 8 bytes: it has
    ids of every bucket.
    """

    share: int = 1  # one of how many ids is compared; 1: all
    offset: int = 0  # which of them, below ``share``
    partitions: int = 1  # partitions of all passes
    first: int = 0  # first partition of this pass
    count: int = 1  # partitions of this pass

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
        return np.split(records[order], np.searchsorted(places[order], np.arange(1, self.count)))


def to_records(rows: Iterable[tuple[Any, ...]]) -> Records:
    """Return rows, with the values of ``RECORD`` in its order, as an array."""
    return np.array(list(rows), RECORD)


def stored_hash(values: Sequence[Any]) -> int:
    """Return 64 bits of a hash of stored fields."""
    content = json.dumps(values, default=value_to_json).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rules of a comparison of ids."""

    rule: Literal["first", "last"]  # which row of an id is the document: the first or the last one of the source
    has_index: bool  # whether there are records of an index
    has_base: bool  # whether the index was built from another version of the table, whose records are ``BASE``


@dataclass(frozen=True, slots=True)
class Found:
    """Findings of one partition."""

    counts: Mapping[str, int]  # kind of finding -> number of ids
    # kind of finding -> places (kind of record, file, position), at most ``EXAMPLES``
    examples: Mapping[str, tuple[tuple[int, int, int], ...]]
    missing_files: Mapping[int, int]  # number of the source file -> missing ids whose document is in it
    source_files: np.typing.NDArray[np.int64]  # keys of the source files of all rows of the table
    record_bytes: int  # bytes of the records


def compare(comparison: Comparison, *parts: Records) -> Found:
    """Compare all records of one partition."""
    records = np.concatenate([np.empty(0, RECORD), *parts])
    records = records[np.lexsort((records["low"], records["high"]))]
    same = (records["high"][1:] == records["high"][:-1]) & (records["low"][1:] == records["low"][:-1])
    ids = np.concatenate([np.zeros(min(len(records), 1), np.int64), np.cumsum(~same)])
    groups = _Groups(records, ids, int(ids[-1]) + 1 if len(ids) else 0)
    chosen = groups.choose(comparison.rule)
    findings = _of_table(groups, chosen)
    if comparison.has_index:
        findings |= _of_index(groups, BASE if comparison.has_base else TABLE)
    missing = np.unique(records["file"][chosen[findings["missing"][0]]], return_counts=True)
    return Found(
        counts={name: int(flags.sum()) for name, (flags, _) in findings.items()},
        examples={
            name: tuple(
                tuple(int(records[column][row]) for column in ("kind", "file", "position"))  # type: ignore[misc]
                for row in places[flags][:EXAMPLES].tolist()
            )
            for name, (flags, places) in findings.items()
            if flags.any()
        },
        missing_files=dict(zip(*(column.tolist() for column in missing), strict=True)),
        source_files=np.unique(records["source_file"][records["kind"] == TABLE]),
        record_bytes=records.nbytes,
    )


@dataclass(frozen=True, slots=True)
class _Groups:
    """Records of a partition, grouped by id."""

    records: Records  # sorted by id
    ids: Ints  # number of the id of each record, ascending
    count: int  # number of ids

    def number_of(self, kind: int) -> Ints:
        """Return the number of records of a kind, [count]."""
        return np.bincount(self.ids[self.records["kind"] == kind], minlength=self.count)

    def last_of(self, kind: int) -> Ints:
        """Return the last record of a kind, [count]; -1: there is none."""
        rows = np.flatnonzero(self.records["kind"] == kind)
        found = np.full(self.count, -1, np.int64)
        found[self.ids[rows]] = rows
        return found

    def choose(self, rule: Literal["first", "last"]) -> Ints:
        """Return the row of the source that is the document of each id, [count]; -1: there is none."""
        rows = np.flatnonzero(self.records["kind"] == SOURCE)
        rows = rows[np.lexsort((self.records["position"][rows], self.records["file"][rows]))]
        found = np.full(self.count, -1, np.int64)
        ordered = rows if rule == "last" else rows[::-1]
        found[self.ids[ordered]] = ordered  # of several rows of an id, the assignment of the last one counts
        return found


def _of_table(groups: _Groups, chosen: Ints) -> dict[str, Finding]:
    rows, explained, found = groups.number_of(TABLE), _explained(groups, chosen), groups.last_of(TABLE)
    has_document, has_row = chosen >= 0, rows > 0
    only_bad = ~has_document & ~has_row & (groups.number_of(BAD) > 0)
    return {
        "documents": (has_document, chosen),
        "repeated": (groups.number_of(SOURCE) > 1, chosen),
        "quarantined": ((has_document & ~has_row & explained) | only_bad, np.maximum(chosen, groups.last_of(BAD))),
        "missing": (has_document & ~has_row & ~explained, chosen),
        "removed": (has_row & ~has_document, found),
        "outdated": (has_row & has_document & _differing(groups, chosen) & ~explained, found),
        "doubled": (rows > 1, found),
    }


def _explained(groups: _Groups, chosen: Ints) -> Bools:
    """Return for which ids the quarantine has the very row that has to be the document: the model failed on it."""
    records = groups.records
    rows = np.flatnonzero(records["kind"] == QUARANTINE)
    wanted = chosen[groups.ids[rows]]
    same = wanted >= 0
    for column in ("source_file", "position"):
        same &= records[column][rows] == records[column][wanted]
    found = np.zeros(groups.count, np.bool_)
    found[groups.ids[rows[same]]] = True
    return found


def _differing(groups: _Groups, chosen: Ints) -> Bools:
    """Return for which ids a row of the table has another content than the row that has to be the document."""
    records = groups.records
    rows = np.flatnonzero(records["kind"] == TABLE)
    wanted = chosen[groups.ids[rows]]
    differs = (records["key"][rows] != records["key"][wanted]) | (records["stored"][rows] != records["stored"][wanted])
    found = np.zeros(groups.count, np.bool_)
    found[groups.ids[rows[differs & (wanted >= 0)]]] = True
    return found


def _of_index(groups: _Groups, base: int) -> dict[str, Finding]:
    live, hidden, rows = groups.number_of(INDEX), groups.number_of(TAKEDOWN) > 0, groups.last_of(base)
    found = groups.last_of(INDEX)
    return {
        "taken_down": (hidden & (rows >= 0) & (live == 0), rows),
        "index_missing": ((rows >= 0) & ~hidden & (live == 0), rows),
        "index_stale": ((rows < 0) & (live > 0), found),
        "index_doubled": (live > 1, found),
        "exposed": (hidden & (live > 0), found),
    }
