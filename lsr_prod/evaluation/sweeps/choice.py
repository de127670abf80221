"""Choice of the cheapest setting whose quality is close to that of the best one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lsr_prod.evaluation.significance import paired_t
from lsr_prod.evaluation.sweeps.points import Point, Setting


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen setting.

    Attributes:
        setting: the setting.
        points: name of the collection -> position of its point.
        best: the setting with the highest mean over the collections.
        value: mean of the measure over the collections.
        best_value: that of ``best``.
        cost: mean of the cost over the collections.
        best_cost: that of ``best``.
        p: p-value of the paired t-test against ``best`` over the queries of all collections; 1 if it is the best.
        queries: number of these queries.
    """

    setting: Setting
    points: dict[str, int]
    best: Setting
    value: float
    best_value: float
    cost: float
    best_cost: float
    p: float
    queries: int

    def sentence(self, measure: str, cost: str, within: float) -> str:
        """Return the choice in one sentence."""
        unit = {"flops": "FLOPS", "match_p50_ms": "ms of matching (p50)", "bytes": "bytes of postings"}[cost]
        mean = "mean " if len(self.points) > 1 else ""
        if self.setting == self.best:
            return (
                f"{self.setting}: no cheaper setting is within {within:.1%} of its {mean}{measure} of "
                f"{self.value:.4f} without being significantly worse; it costs {self.cost:.4g} {unit}"
            )
        return (
            f"{self.setting}: {mean}{measure} {self.value:.4f}, not significantly worse than {self.best_value:.4f} of "
            f"{self.best} (paired t-test, p = {self.p:.3f}, {self.queries} queries), with {self.cost:.4g} instead of "
            f"{self.best_cost:.4g} {unit}"
        )


def choose_setting(points: Sequence[Point], *, measure: str, cost: str, within: float, significance: float) -> Choice:
    """Return the cheapest setting that loses little quality against the best one.

    The best setting has the highest mean of the measure over the collections. A cheaper one is possible if it loses at
    most the share ``within`` on the mean and on every collection, and if a paired t-test finds it significantly worse
    neither over the queries of all collections nor on one of them. The tests are not corrected for their number: a
    correction would admit more settings.
    """
    places: dict[Setting, dict[str, int]] = {}
    for place, point in enumerate(points):
        places.setdefault(point.setting, {})[point.collection] = place

    def mean(setting: Setting) -> float:
        return float(np.mean([points[place].measures[measure] for place in places[setting].values()]))

    def price(setting: Setting) -> float:
        return float(np.mean([points[place].cost(cost) for place in places[setting].values()]))

    best = max(places, key=lambda setting: (mean(setting), -price(setting)))
    reference = {name: points[place] for name, place in places[best].items()}
    for setting in sorted(places, key=lambda one: (price(one), -mean(one))):
        its_points = {name: points[place] for name, place in places[setting].items()}
        close = mean(setting) >= (1 - within) * mean(best)
        if setting == best or (close and _close(its_points, reference, measure, within, significance)):
            return Choice(
                setting=setting,
                points=places[setting],
                best=best,
                value=mean(setting),
                best_value=mean(best),
                cost=price(setting),
                best_cost=price(best),
                p=_p(list(its_points.values()), list(reference.values()), measure),
                queries=sum(len(point.by_query[measure]) for point in its_points.values()),
            )
    raise AssertionError("the best setting is always possible")


def _close(
    its_points: Mapping[str, Point], reference: Mapping[str, Point], measure: str, within: float, significance: float
) -> bool:
    """Return whether a setting loses little on every collection, and is significantly worse on none, nor on all."""
    pairs = [(its_points[name], reference[name]) for name in reference]
    if any(one.measures[measure] < (1 - within) * other.measures[measure] for one, other in pairs):
        return False
    tested = [([one], [other]) for one, other in pairs]
    tested.append(([one for one, _ in pairs], [other for _, other in pairs]))
    return not any(
        _sum(worse, measure) < _sum(better, measure) and _p(worse, better, measure) < significance
        for worse, better in tested
    )


def _p(ones: Sequence[Point], others: Sequence[Point], measure: str) -> float:
    worse, better = (np.concatenate([point.by_query[measure] for point in points]) for points in (ones, others))
    return float(paired_t((worse - better)[:, None])[0])


def _sum(points: Sequence[Point], measure: str) -> float:
    return sum(sum(point.by_query[measure]) for point in points)
