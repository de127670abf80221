"""Is one model better than another on the same queries? Differences by query, and the signs they might have had."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.evaluation.comparisons import bootstrap_means, paired_randomization


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a paired test found.

    Attributes:
        difference: mean over the queries of ours minus theirs.
        low: 2.5 % of the bootstrapped means are below it.
        high: 97.5 %.
        p: two-sided, of a mean this far from 0 if the signs were drawn by coin.
        wins: seeds in which our mean is the higher one.
        seeds: how many there are.
    """

    difference: float
    low: float
    high: float
    p: float
    wins: int
    seeds: int

    @property
    def detectable(self) -> float:
        """The true difference that such a test finds significant in four of five cases.

        1.96 + .84 standard errors (power .8 at p < .05); the 95 % interval is 2 x 1.96 of them wide.
        """
        return (1.96 + 0.84) / (2 * 1.96) * (self.high - self.low)


def compare(
    ours: Sequence[npt.NDArray[np.float64]],
    theirs: Sequence[npt.NDArray[np.float64]],
    groups: Sequence[str],
    *,
    rounds: int = 10_000,
) -> Comparison:
    """Paired randomisation test and bootstrap of seed-averaged values.

    Queries of one group (those of one page) are no independent evidence: a group gets one sign, and is drawn whole.

    Args:
        ours: values by query, an array for each seed.
        theirs: the same of the other model, seeds in the same order.
        groups: name of each query's group.
        rounds: of either.
    """
    differences = np.mean(ours, axis=0) - np.mean(theirs, axis=0)  # [Q]
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    sums, sizes = np.bincount(group, differences)[:, None], np.bincount(group).astype(np.float64)  # [G, 1], [G]
    low, high = np.percentile(bootstrap_means(sums, resamples=rounds, sizes=sizes), [2.5, 97.5])
    return Comparison(
        difference=float(differences.mean()),
        low=float(low),
        high=float(high),
        p=float(paired_randomization(sums, resamples=rounds)[0]),
        wins=sum(bool(one.mean() > other.mean()) for one, other in zip(ours, theirs, strict=True)),
        seeds=len(ours),
    )
