"""Number of requests to an object store that an encode run needs, by kind."""

import math
from dataclasses import dataclass

from lsr_prod.operations.cluster import RequestKind

__all__ = ["RunSize", "count_requests"]


@dataclass(frozen=True, slots=True)
class RunSize:
    """Size of an encode run.

    Attributes:
        source_bytes: bytes of the corpus.
        table_bytes: bytes of the table.
        part_bytes: bytes of a part, about.
        read_bytes: source bytes per request.
        wave_parts: parts per wave.
    """

    source_bytes: int
    table_bytes: int
    part_bytes: int = 256_000_000
    read_bytes: int = 8_000_000
    wave_parts: int = 1_000

    @property
    def parts(self) -> int:
        """Parts that the run writes."""
        return max(math.ceil(self.table_bytes / self.part_bytes), 1)

    @property
    def waves(self) -> int:
        """Commits of the run."""
        return math.ceil(self.parts / self.wave_parts)


def count_requests(size: RunSize) -> dict[RequestKind, int]:
    """Return the requests of a run by kind.

    A part is written, and verified once; its marker is written, read and deleted. A commit writes one object of the log
    and one of the quarantine, and lists the markers of the wave, 1,000 names per request. A part is uploaded in pieces
    of ``read_bytes``.
    """
    pieces = math.ceil(size.part_bytes / size.read_bytes)
    return {
        "put": size.parts * (pieces + 3) + 3 * size.waves,
        "get": math.ceil(size.source_bytes / size.read_bytes) + 3 * size.parts + 10 * size.waves,
        "list": math.ceil(size.parts / 1000) + 5 * size.waves,
        "delete": size.parts,
    }
