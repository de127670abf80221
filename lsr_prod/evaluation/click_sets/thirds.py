"""Three quantiles of the matched-term ratio, and the same number of queries from each (3.5.1)."""

import numpy as np
import numpy.typing as npt

from lsr_prod.evaluation.click_sets.hashing import Hashes, mix

_ORDER_OF_TIES, _ORDER_OF_DRAW = 3, 4


def thirds_by_rank(ratio: npt.NDArray[np.float64], hashes: Hashes) -> npt.NDArray[np.int8]:
    """Return the third of every query: 0 low, 1 middle, 2 high.

    Queries are ordered by (ratio, seeded hash, number); third i has the ranks from ``i * n // 3`` to ``(i + 1) * n //
    3``. Short queries have few different ratios, so many queries are tied at a boundary: the hash decides there.
    """
    count = len(ratio)
    order = np.lexsort((np.arange(count), mix(hashes, _ORDER_OF_TIES), ratio))
    third = np.zeros(count, np.int8)
    for number in range(3):
        third[order[number * count // 3 : (number + 1) * count // 3]] = number
    return third


def draw_equally(third: npt.NDArray[np.int8], hashes: Hashes, drawn: int | None) -> npt.NDArray[np.int64]:
    """Draw the same number of queries from each third: as many as the smallest has, ``drawn // 3`` at most.

    Returns:
        Numbers of the drawn queries, rising.
    """
    number = int(np.bincount(third, minlength=3).min())
    number = number if drawn is None else min(number, drawn // 3)
    order = np.lexsort((np.arange(len(third)), mix(hashes, _ORDER_OF_DRAW)))
    return np.sort(np.concatenate([order[third[order] == one][:number] for one in range(3)]))
