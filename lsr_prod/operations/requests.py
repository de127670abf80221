"""Number of requests to an object store that an encode run needs, by kind.

The coefficients were counted at an S3 endpoint: runs of 2 waves with 8 parts and of 5 waves with 20 parts.
"""

import math
from dataclasses import dataclass

from lsr_prod.operations.cluster import RequestKind

_PART_BYTES = 256_000_000
_PARTS_PER_WAVE = 1000
_READ_BYTES = 8_000_000


@dataclass(frozen=True, slots=True)
class RunSize:
    """Size of an encode run that makes a table.

    Attributes:
        reads: requests that read the source.
        parts: parts of the table.
        waves: commits.
    """

    reads: int
    parts: int
    waves: int

    @classmethod
    def of_bytes(cls, source_bytes: int, table_bytes: int) -> "RunSize":
        """Return the size of a run with parts of 256 MB, 1,000 parts per wave, and one request per 8 MB of source."""
        parts = max(math.ceil(table_bytes / _PART_BYTES), 1)
        return cls(math.ceil(source_bytes / _READ_BYTES), parts, math.ceil(parts / _PARTS_PER_WAVE))


def count_requests(size: RunSize) -> dict[RequestKind, int]:
    """Return the requests of a run by kind; metadata of an object (HEAD) counts as ``get``.

    A part costs two objects, itself and its marker, and six requests that verify it. A wave looks for its ids in the
    part that each earlier wave wrote to the same bucket, with three requests each. A wave costs one object of the log,
    its record, and 35 reads and 11 lists to open tables. Nothing is deleted.
    """
    lookups = size.parts * (size.waves - 1) // 2
    return {
        "put": 2 * size.parts + 2 * size.waves + 9,
        "get": size.reads + 6 * size.parts + 3 * lookups + 35 * size.waves + 20,
        "list": 11 * size.waves + 35,
        "delete": 0,
    }
