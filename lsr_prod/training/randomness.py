"""Random numbers as functions of where they are used: no generator runs along, so a resumed run draws the same."""

import numpy as np
import torch

__all__ = ["seed_torch", "seed_value"]


def seed_value(*position: int) -> int:
    """A 63-bit seed for a place in a run, for example (seed, step, worker, part, chunk)."""
    state = np.random.SeedSequence(position).generate_state(1, np.uint64)[0]
    return int(state) >> 1


def seed_torch(*position: int) -> None:
    """Let every generator of torch in this process start from ``seed_value(*position)``."""
    torch.manual_seed(seed_value(*position))
