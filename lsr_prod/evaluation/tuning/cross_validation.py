"""Cross-validation of a tuner by query."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def make_folds(queries: int, folds: int, seed: int) -> npt.NDArray[np.int64]:
    """Return int64 [Q]: the fold of every query; sizes differ by one at most, and the seed draws the queries."""
    assigned = np.arange(queries, dtype=np.int64) % folds
    np.random.default_rng(seed).shuffle(assigned)
    return assigned


def cross_validate(
    choose: Callable[[npt.NDArray[np.bool_]], Any], values: Callable[[Any], Floats], folds: npt.NDArray[np.int64]
) -> tuple[Floats, list[Any]]:
    """Choose on all folds but one, and measure the choice on the one that was left out.

    Returns:
        float64 [Q], the value of every query by a choice that did not see it; and the choice of every fold.
    """
    held_out, choices = np.zeros(len(folds)), []
    for fold in range(int(folds.max()) + 1):
        choices.append(choose(folds != fold))
        held_out[folds == fold] = values(choices[-1])[folds == fold]
    return held_out, choices
