"""Blocks that run far longer than the others, for example on a slow node."""

from collections import deque
from statistics import median

_KNOWN = 64  # newest durations
_ENOUGH = 4  # of them, before a block is late
_TIMES = 1.5  # longer than the median: an idle encoder has nothing better to do
_LEAST_S = 30.0


class BlockDurations:
    """Durations of the blocks that are finished."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_KNOWN)

    def add(self, seconds: float) -> None:
        """Add the duration of a block."""
        self._seconds.append(seconds)

    def is_late(self, seconds: float) -> bool:
        """Return whether a block that has run for so long runs far longer than the finished ones."""
        if len(self._seconds) < _ENOUGH:
            return False
        return seconds > max(_LEAST_S, _TIMES * median(self._seconds))
