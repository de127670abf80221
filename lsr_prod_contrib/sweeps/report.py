"""Report of a sweep: all points, Pareto fronts, the chosen setting, and its patch of the deployment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lsr_prod.config import Deployment
from lsr_prod.evaluation.comparisons import paired_t
from lsr_prod_contrib.sweeps.patches import Patch, evaluate_patch, limit_patch, search_options
from lsr_prod_contrib.sweeps.plan import Point, Setting

COSTS = ("flops", "match_p50_ms", "bytes")


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
        return float(np.mean([points[place].report.measures[measure] for place in places[setting].values()]))

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
                queries=sum(len(point.report.by_query[measure]) for point in its_points.values()),
            )
    raise AssertionError("the best setting is always possible")


def _close(
    its_points: Mapping[str, Point], reference: Mapping[str, Point], measure: str, within: float, significance: float
) -> bool:
    """Return whether a setting loses little on every collection, and is significantly worse on none, nor on all."""
    pairs = [(its_points[name], reference[name]) for name in reference]
    if any(one.report.measures[measure] < (1 - within) * other.report.measures[measure] for one, other in pairs):
        return False
    tested = [([one], [other]) for one, other in pairs]
    tested.append(([one for one, _ in pairs], [other for _, other in pairs]))
    return not any(
        _sum(worse, measure) < _sum(better, measure) and _p(worse, better, measure) < significance
        for worse, better in tested
    )


def _p(ones: Sequence[Point], others: Sequence[Point], measure: str) -> float:
    worse, better = (np.concatenate([point.report.by_query[measure] for point in points]) for points in (ones, others))
    return float(paired_t((worse - better)[:, None])[0])


def _sum(points: Sequence[Point], measure: str) -> float:
    return sum(sum(point.report.by_query[measure]) for point in points)


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Result of a sweep.

    Attributes:
        measure: the measure of the fronts and of the choice.
        cost: the cost that the choice minimizes.
        within: share of the best value that the choice may lose.
        significance: level of the paired tests.
        points: all points; collections vary slowest, then models, prunings, thresholds and hybrid weights.
        fronts: collection -> cost -> positions of the points of the Pareto front, by rising cost.
        choice: the chosen setting.
        patch: section -> field -> value: what a deployment has to change for the chosen setting.
        search: keyword arguments of ``Searcher.search`` for the chosen setting; ``hybrid`` holds those of ``Hybrid``.
        queries: collection -> ids of its queries, in the order of ``by_query``.
        documents: collection -> number of documents.
    """

    measure: str
    cost: str
    within: float
    significance: float
    points: Sequence[Point]
    fronts: Mapping[str, Mapping[str, Sequence[int]]]
    choice: Choice
    patch: Patch
    search: Mapping[str, Any]
    queries: Mapping[str, Sequence[str]]
    documents: Mapping[str, int]

    @property
    def sentence(self) -> str:
        """The choice in one sentence."""
        return self.choice.sentence(self.measure, self.cost, self.within)

    def result(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "measure": self.measure,
            "costs": list(COSTS),
            "collections": [
                {"name": name, "queries": len(ids), "documents": self.documents[name], "query_ids": list(ids)}
                for name, ids in self.queries.items()
            ],
            "points": [point.to_json() for point in self.points],
            "fronts": {name: {cost: list(front) for cost, front in of.items()} for name, of in self.fronts.items()},
            "chosen": {
                "point": next(iter(self.choice.points.values())),
                "points": self.choice.points,
                "cost": self.cost,
                "value": self.choice.value,
                "best_value": self.choice.best_value,
                "within": self.within,
                "significance": self.significance,
                "p": self.choice.p,
                "patch": {section: dict(fields) for section, fields in self.patch.items()},
                "search": dict(self.search),
                "sentence": self.sentence,
            },
        }


def make_report(
    points: Sequence[Point],
    deployment: Deployment,
    *,
    bundles: Mapping[str, str],
    queries: Mapping[str, Sequence[str]],
    documents: Mapping[str, int],
) -> SweepReport:
    """Compute fronts, choice and patch."""
    settings = deployment.sweep
    assert settings is not None
    choice = choose_setting(
        points,
        measure=settings.main,
        cost=settings.cost,
        within=settings.within,
        significance=settings.significance,
    )
    chosen = choice.setting
    qk, bundle, words = chosen.qk or None, bundles[chosen.model], chosen.hybrid_weight
    search = search_options(qk=qk, threshold=chosen.threshold, hybrid_weight=words)
    patch: Patch = {
        "encode": {"bundle": bundle},
        "index": {"bundle": bundle, "dk": chosen.dk or None, **({} if words is None else {"bm25": True})},
        "evaluate": evaluate_patch(deployment, search),
    }
    return SweepReport(
        measure=settings.main,
        cost=settings.cost,
        within=settings.within,
        significance=settings.significance,
        points=points,
        fronts=_fronts(points, settings.main),
        choice=choice,
        patch=limit_patch(patch, deployment),
        search=search,
        queries=queries,
        documents=documents,
    )


def _fronts(points: Sequence[Point], measure: str) -> dict[str, dict[str, list[int]]]:
    fronts = {}
    for collection in dict.fromkeys(point.collection for point in points):
        places = [place for place, point in enumerate(points) if point.collection == collection]
        values = [points[place].report.measures[measure] for place in places]
        fronts[collection] = {
            cost: [places[i] for i in pareto_front(values, [points[place].cost(cost) for place in places])]
            for cost in COSTS
        }
    return fronts


def pareto_front(values: Sequence[float], costs: Sequence[float]) -> list[int]:
    """Return the points that no other point dominates, by rising cost.

    A point dominates another if its value is not lower and its cost not higher, and one of the two is better. Points
    with equal value and equal cost do not dominate each other.

    Returns:
        Positions of the points, by rising cost, ties in the given order.
    """
    order = sorted(range(len(values)), key=lambda place: (costs[place], -values[place]))
    front: list[int] = []
    for place in order:
        ties = bool(front) and (values[place], costs[place]) == (values[front[-1]], costs[front[-1]])
        if not front or ties or values[place] > values[front[-1]]:
            front.append(place)
    return front
