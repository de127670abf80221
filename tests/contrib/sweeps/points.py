"""Points for tests of the choice and of the report."""

from collections.abc import Mapping, Sequence

import numpy as np

from lsr_prod.evaluation.vector_evaluation import LevelReport
from lsr_prod_contrib.sweeps.plan import Point, Setting


def point(
    values: Sequence[float], cost: float = 1.0, *, collection: str = "one", model: str = "m", threshold: float = 0.0
) -> Point:
    """Return a point with one measure."""
    setting = Setting(model, 0, 0, threshold, None)
    mean = {"RR@10": sum(values) / len(values)}
    row = {"RR@10": np.array(values)}
    report = LevelReport(
        qk=0, dk=0, threshold=threshold, measures=mean, by_query=row, l0_query=1.0, l0_document=1.0, flops=cost,
        matched=1.0, bytes=int(cost * 100), match_p50_ms=cost,
    )  # fmt: skip
    return Point(collection, setting, report)


def by_threshold(rows: Mapping[str, Sequence[Sequence[float]]], costs: Sequence[float]) -> list[Point]:
    """Return points of settings that differ in their threshold, of every collection."""
    return [
        point(values, costs[number], collection=collection, threshold=number / 10)
        for collection, of in rows.items()
        for number, values in enumerate(of)
    ]
