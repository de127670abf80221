"""Working time of the encoders between the first and the last block of a run."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BusyTime:
    """Working time of encoders, summed over blocks.

    Attributes:
        seconds: duration of the calls of the model, summed over blocks.
        first: start of the model in the first block, on the monotonic clock of the driver; opening it is not included.
        last: end of the last block, on the same clock.
    """

    seconds: float = 0.0
    first: float = math.inf
    last: float = -math.inf

    @classmethod
    def of_block(cls, seconds: float, ended: float) -> "BusyTime":
        """Return the time of one block whose model ran for ``seconds`` and that ended at ``ended``."""
        return cls(seconds, ended - seconds, ended)

    def __add__(self, other: "BusyTime") -> "BusyTime":
        return BusyTime(self.seconds + other.seconds, min(self.first, other.first), max(self.last, other.last))

    @property
    def span_s(self) -> float:
        """Seconds from the start of the first to the end of the last block; 0 without a block."""
        return max(self.last - self.first, 0.0)

    def share(self, actors: int) -> float:
        """Return the share of that time in which ``actors`` encoders worked; 0 without a block.

        At most 1: in a run of a second the driver learns of several blocks at once, and takes their ends for one.
        """
        return min(self.seconds / (actors * self.span_s), 1.0) if self.span_s else 0.0
