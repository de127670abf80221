"""Masks of masked language modeling: selection of tokens and their replacements (BERT's 80/10/10).

All random numbers are functions of seed, step, row and position: masks do not depend on the number of workers.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.training.rng import draw

_CHOICE, _FATE, _RANDOM = 11, 12, 13  # purpose of random numbers
_HIDDEN, _REPLACED = 0.8, 0.9  # below: mask token, random token; above: unchanged (Devlin et al., 2019)


@dataclass(frozen=True, slots=True)
class Masked:
    """Masked batch.

    Attributes:
        input_ids: int64 [B, L].
        places: int64 [M], positions to predict, in the flattened batch.
        labels: int64 [M], tokens or terms to predict.
    """

    input_ids: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


def mask_rates(weights: npt.NDArray[np.float64], rate: float) -> npt.NDArray[np.float64]:
    """Return the mask probability of each token: proportional to its weight, on average ``rate`` per text.

    The weights are omega of vocabulary-transfer, 4.2.3; that the average holds for each text is our choice.
    Probabilities above 1 are cut to 1, and the remainder is distributed over the rest of the text.

    Returns:
        float64 [B, L]; a row sums to ``rate`` times its tokens with a weight above 0.
    """
    maskable = weights > 0
    wanted = rate * maskable.sum(axis=1, keepdims=True)
    certain = np.zeros_like(maskable)
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
    """Mask each token with its probability."""
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
    """Replace chosen tokens: 80 % by the mask token, 10 % by a random token; 10 % are unchanged.

    Returns:
        int64 [B, L].
    """
    positions = np.arange(input_ids.shape[1])
    kinds = uniform(seed, _FATE, step, rows[:, None], positions if groups is None else groups)
    drawn = draw(seed, _RANDOM, step, rows[:, None], positions) % np.uint64(len(ordinary))
    replaced = np.where(kinds < _HIDDEN, mask_id, np.where(kinds < _REPLACED, ordinary[drawn], input_ids))
    return np.where(chosen, replaced, input_ids)


def uniform(*names: int | npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for every combination of names; see ``rng.draw``."""
    return (draw(*names) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def token_weights(size: int, new: Iterable[int], special: Iterable[int], weight: float) -> npt.NDArray[np.float64]:
    """Return omega of every token, float64 [size]: ``weight`` for new tokens, 0 for special tokens, otherwise 1."""
    omega = np.ones(size)
    omega[list(new)] = weight
    omega[list(special)] = 0.0
    return omega
