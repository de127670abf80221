"""Masks of masked language modelling: which tokens are hidden and what stands in their place (BERT's 80/10/10).

Every draw is a function of seed, step, row and position, so that a batch is the same however many workers share it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.training.rng import draw

__all__ = ["Masked", "hide", "mask_rates", "mask_tokens", "token_weights", "uniform"]

_CHOICE, _FATE, _RANDOM = 11, 12, 13  # what a number is drawn for
_HIDDEN, _REPLACED = 0.8, 0.9  # up to these: the mask token, a random one; above: unchanged (Devlin et al., 2019)


@dataclass(frozen=True, slots=True)
class Masked:
    """A batch with masks.

    Attributes:
        input_ids: int64 [B, L].
        places: int64 [M], positions to predict, counted through the batch row after row.
        labels: int64 [M], what stands there.
    """

    input_ids: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


def mask_rates(weights: npt.NDArray[np.float64], rate: float) -> npt.NDArray[np.float64]:
    """Probability of each token to be masked: in proportion to its weight, ``rate`` of a text's tokens expected.

    The weights are omega of vocabulary-transfer, 4.2.3. The expected rate is that of every single text (ours). Where a
    proportional share would be above 1 it is 1, and the rest of the text gets the remainder.

    Args:
        weights: float64 [B, L], omega; 0 for what is never masked.
        rate: expected share of the tokens with a weight.

    Returns:
        float64 [B, L]; of each row the sum is ``rate`` times its tokens with a weight.
    """
    can = weights > 0
    wanted = rate * can.sum(axis=1, keepdims=True)
    certain = np.zeros_like(can)
    while True:
        free = np.where(certain, 0.0, weights)
        total = free.sum(axis=1, keepdims=True)
        left = wanted - certain.sum(axis=1, keepdims=True)
        rates = np.where(certain, 1.0, free * left / np.where(total > 0, total, 1.0))
        above = rates > 1
        if not above.any():
            return rates
        certain |= above


def mask_tokens(
    input_ids: npt.NDArray[np.int64],
    rates: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
    *,
    seed: int,
    step: int,
    mask_id: int,
    ordinary: npt.NDArray[np.int64],
) -> Masked:
    """Mask each token by chance.

    Args:
        input_ids: int64 [B, L].
        rates: float64 [B, L], probability of each token.
        rows: int64 [B], number of each text in the training set.
        seed: of the draw.
        step: the step, counted over all epochs.
        mask_id: the mask token.
        ordinary: int64 [n], tokens that a random one is drawn from.
    """
    chosen = uniform(seed, _CHOICE, step, rows[:, None], np.arange(input_ids.shape[1])) < rates
    places = np.flatnonzero(chosen)
    hidden = hide(input_ids, chosen, rows, seed=seed, step=step, mask_id=mask_id, ordinary=ordinary)
    return Masked(hidden, places, input_ids.reshape(-1)[places])


def hide(
    input_ids: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.bool_],
    rows: npt.NDArray[np.int64],
    *,
    seed: int,
    step: int,
    mask_id: int,
    ordinary: npt.NDArray[np.int64],
    groups: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.int64]:
    """Replace chosen tokens: 80 % by the mask token, 10 % by a random one, 10 % stay.

    Args:
        input_ids: int64 [B, L].
        chosen: bool [B, L].
        rows: int64 [B], number of each text in the training set.
        seed: of the draw.
        step: the step.
        mask_id: the mask token.
        ordinary: int64 [n], tokens that a random one is drawn from.
        groups: int64 [B, L], tokens of one number in a row share their fate; None: each has its own.

    Returns:
        int64 [B, L].
    """
    positions = np.arange(input_ids.shape[1])
    fates = uniform(seed, _FATE, step, rows[:, None], positions if groups is None else groups)
    drawn = draw(seed, _RANDOM, step, rows[:, None], positions) % np.uint64(len(ordinary))
    replaced = np.where(fates < _HIDDEN, mask_id, np.where(fates < _REPLACED, ordinary[drawn], input_ids))
    return np.where(chosen, replaced, input_ids)


def uniform(*names: int | npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for every combination of names, as ``draw`` gives them."""
    return (draw(*names) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def token_weights(size: int, new: Iterable[int], special: Iterable[int], weight: float) -> npt.NDArray[np.float64]:
    """Omega of every token, float64 [size]: ``weight`` of a new one, 1 of another, 0 of a special one."""
    omega = np.ones(size)
    omega[list(new)] = weight
    omega[list(special)] = 0.0
    return omega
