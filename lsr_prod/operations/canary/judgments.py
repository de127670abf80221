"""Measure of the rankings of both sides, for the queries that have relevance judgments."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import ir_measures

from lsr_prod.evaluation.measures import measure_by_query, parse_measures
from lsr_prod.operations.canary.changes import QueryChange


class Judge:
    """Computes a measure per query and side.

    Args:
        measure: as named by ir_measures.
        qrels: all judgments.
        field: setting that named the measure, for the error.

    Raises:
        ConfigError: the measure is unknown.
    """

    def __init__(self, measure: str, qrels: Iterable[ir_measures.Qrel], *, field: str = "--measure") -> None:
        self._measures = parse_measures(field, [measure])
        self.measure = measure
        self._qrels: defaultdict[str, list[ir_measures.Qrel]] = defaultdict(list)
        for judgment in qrels:
            self._qrels[judgment.query_id].append(judgment)

    def judge(self, changes: Sequence[QueryChange]) -> list[QueryChange]:
        """Return the changes with the values of both sides; those of queries without a judgment as they are."""
        ids = [change.query_id for change in changes if change.query_id in self._qrels]
        if not ids:
            return list(changes)
        qrels = [judgment for query_id in ids for judgment in self._qrels[query_id]]
        sides = ({change.query_id: getattr(change, side) for change in changes} for side in ("a", "b"))
        values = (measure_by_query(self._measures, qrels, side, ids)[self.measure].tolist() for side in sides)
        a, b = (dict(zip(ids, column, strict=True)) for column in values)
        return [
            replace(change, value_a=a[change.query_id], value_b=b[change.query_id]) if change.query_id in a else change
            for change in changes
        ]
