"""Counts of this process's requests to stores, and of the bytes that it reads and writes, local folders included.

Requests of delta-rs for the log of a Delta table are not counted: they do not pass through ``Store``.
"""

import io
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """Requests and bytes.

    Attributes:
        requests: number of requests by kind: ``get``, ``put``, ``head``, ``list`` and ``delete``. A local file that is
            opened is one ``get``; an object is one per piece that is read.
        bytes_read: bytes of contents that were read.
        bytes_written: bytes of contents that were written.
    """

    requests: Mapping[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0

    def __add__(self, other: "StoreCounts") -> "StoreCounts":
        """Return the sum."""
        requests = Counter(self.requests)
        requests.update(other.requests)
        return StoreCounts(dict(requests), self.bytes_read + other.bytes_read, self.bytes_written + other.bytes_written)

    def __sub__(self, earlier: "StoreCounts") -> "StoreCounts":
        """Return what was counted since an earlier moment."""
        requests = {kind: number - earlier.requests.get(kind, 0) for kind, number in self.requests.items()}
        return StoreCounts(
            {kind: number for kind, number in requests.items() if number},
            self.bytes_read - earlier.bytes_read,
            self.bytes_written - earlier.bytes_written,
        )


_lock = threading.Lock()
_requests: Counter[str] = Counter()
_bytes = Counter(read=0, written=0)


def count(kind: str, *, requests: int = 1, read: int = 0, written: int = 0) -> None:
    """Count requests of one kind and their bytes."""
    with _lock:
        _requests[kind] += requests
        _bytes["read"] += read
        _bytes["written"] += written


def store_counts() -> StoreCounts:
    """Return the counts of this process since it began."""
    with _lock:
        return StoreCounts({kind: number for kind, number in _requests.items() if number}, *_bytes.values())


class CountedFile(io.FileIO):
    """A local file whose bytes are counted when they are read."""

    def readinto(self, buffer: Any, /) -> int:
        """Read bytes into a buffer and return their number."""
        number = super().readinto(buffer) or 0
        count("get", requests=0, read=number)
        return number

    def readall(self) -> bytes:
        """Return the rest of the file."""
        data = super().readall() or b""
        count("get", requests=0, read=len(data))
        return data
