"""BM25 as impacts: the saturation of a word in a document is stored; its inverse frequency is applied per query.

A word of a document has the impact ``round(saturation / IMPACT_STEP)``, 1..255, where ``saturation`` is
tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / average_length)), which is between 0 and K1 + 1. A query multiplies
it by ``IMPACT_STEP`` and by the word's inverse frequency in the whole version, so that a shard's arrays do not depend
on the other shards, and the scores of all shards have one scale. The average length is fixed for a version.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

K1 = 1.2
B = 0.75
IMPACT_STEP = (K1 + 1) / 255


def word_impacts(counts: npt.NDArray[Any], lengths: npt.NDArray[Any], average_length: float) -> npt.NDArray[np.uint8]:
    """Return the impacts of words.

    Returns:
        uint8 [n], 1 or more.
    """
    saturation = counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths / average_length))
    return np.maximum(1, np.rint(saturation / IMPACT_STEP)).astype(np.uint8)


def inverse_frequencies(documents: int, frequencies: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return ln(1 + (N - n + 0.5) / (n + 0.5)), float64 [n], for words that n of N documents have."""
    return np.log1p((documents - frequencies + 0.5) / (frequencies + 0.5))
