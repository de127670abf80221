"""Random numbers as functions of what they are for: no generator runs along, so any step can be made again."""

import numpy as np
import numpy.typing as npt

__all__ = ["draw"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def draw(*names: int | npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """A pseudo-random 64-bit number for every combination of names.

    The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) after each name, which starts from what the names
    before it gave.

    Args:
        names: integers, or int64 arrays that broadcast; their order counts.

    Returns:
        uint64, of the names' common shape.
    """
    state = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):  # arithmetic is modulo 2**64
        for name in names:
            state = _mixed((state ^ np.asarray(name, np.int64).view(np.uint64)) + _GOLDEN)
    return np.asarray(state)


def _mixed(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
