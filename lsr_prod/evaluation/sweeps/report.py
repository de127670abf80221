"""Report of a sweep: all points, Pareto fronts, the chosen setting, and its patch of the deployment."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.evaluation.patches import Patch, evaluate_patch, limit_patch, search_options, write_patch
from lsr_prod.evaluation.sweeps.choice import Choice, choose_setting
from lsr_prod.evaluation.sweeps.pareto import pareto_front
from lsr_prod.evaluation.sweeps.points import Point
from lsr_prod.storage.folders import store_file

COSTS = ("flops", "match_p50_ms", "bytes")


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


def write_report(report: SweepReport, output: str, options: Mapping[str, str]) -> None:
    """Write ``sweep.json`` and ``patch.yaml`` to a folder or URI; files of these names are replaced."""
    place = output.rstrip("/")
    store_file(f"{place}/sweep.json", json.dumps(report.result(), allow_nan=False).encode(), options)
    write_patch(f"{place}/patch.yaml", report.patch, report.sentence, report.search, options)


def _fronts(points: Sequence[Point], measure: str) -> dict[str, dict[str, list[int]]]:
    fronts = {}
    for collection in dict.fromkeys(point.collection for point in points):
        places = [place for place, point in enumerate(points) if point.collection == collection]
        values = [points[place].measures[measure] for place in places]
        fronts[collection] = {
            cost: [places[i] for i in pareto_front(values, [points[place].cost(cost) for place in places])]
            for cost in COSTS
        }
    return fronts
