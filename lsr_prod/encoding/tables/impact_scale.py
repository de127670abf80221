"""The impact scale of a table: the weight of one impact unit, and the error of rounding to it."""

import math
from dataclasses import dataclass

import numpy as np

from lsr_prod.storage.formats.table_format import quantize

HEADROOM = 1.05
"""The largest impact stands for the largest weight of the probe times this; heavier weights are clipped and counted."""

_GRID = 1 << 16


@dataclass(frozen=True, slots=True)
class ImpactScale:
    """Weight of one impact unit, and the error of rounding the weights of the encoded documents to it."""

    step: float  # weight of one unit
    error: float  # mean |weight - impact * step| divided by the mean weight; 0 without weights
    largest_error: float  # the largest |weight - impact * step|
    clipped: float  # share of the weights above the largest impact
    documents: int  # number of encoded documents


def impact_scale(
    weights: np.typing.NDArray[np.float32], bits: int, *, documents: int, step: float | None = None, floor: float = 0.0
) -> ImpactScale:
    """Return the scale for the weights of a probe, and its error on them.

    The step covers the largest weight with headroom and is rounded up to a multiple of 2**-16 (2**-24 for 16 bits), so
    that float noise between machines does not change it. Without weights, the largest weight counts as 1.
    """
    grid = _GRID if bits <= 8 else _GRID << 8
    top = (1 << bits) - 1
    largest = float(weights.max(initial=0.0))
    if step is None:
        step = max(max(math.ceil((largest or 1.0) * HEADROOM / top * grid), 1) / grid, floor)
    if not len(weights):
        return ImpactScale(step, 0.0, 0.0, 0.0, documents)
    impacts, clipped = quantize(weights, step, bits)
    errors = np.abs(weights.astype(np.float64) - impacts * step)
    mean = float(weights.mean(dtype=np.float64))
    return ImpactScale(step, float(errors.mean()) / mean, float(errors.max()), clipped / len(weights), documents)
