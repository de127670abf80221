"""Random numbers as pure functions of their purpose and place in a run.

No generator has a state to save: any step can be repeated, and a resumed run draws the same numbers.
"""

import numpy as np
import numpy.typing as npt
import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def draw(*names: int | npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return a pseudo-random 64-bit number for every combination of names.

    Each name is mixed into the state by the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

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


def seed_value(*position: int) -> int:
    """Return a 63-bit seed for a position in a run, for example (seed, step, worker, part, chunk)."""
    state = np.random.SeedSequence(position).generate_state(1, np.uint64)[0]
    return int(state) >> 1


def seed_torch(*position: int) -> None:
    """Seed all of torch's generators in this process with ``seed_value(*position)``."""
    torch.manual_seed(seed_value(*position))
