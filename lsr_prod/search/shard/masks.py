"""Evaluate filters on the documents of a shard."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.formats.attributes import attribute_column, attribute_types
from lsr_prod.search.query.filter_types import CheckedFilter, check_filter
from lsr_prod.search.query.filters import DOC_ID, Combination, Condition, Filter, Negation
from lsr_prod.search.query.text_filters import TextQuery, TextTokens

Allowed = npt.NDArray[np.uint8]
FindTokens = Callable[[Sequence[str]], Allowed]

_PER_ID = 1_000  # documents whose ids are compared in the time of one search in the order of ids
_COMPARE = {"eq": pc.equal, "gt": pc.greater, "ge": pc.greater_equal, "lt": pc.less, "le": pc.less_equal}


def evaluate(
    expression: Filter,
    batches: Sequence[pa.RecordBatch],
    find: FindTokens | None = None,
    *,
    ordinal: Callable[[str], int | None] | None = None,
    verify: Callable[[Sequence[str]], None] | None = None,
) -> Allowed:
    """Return the documents for which a filter is true.

    Returns:
        uint8 [N], read-only: 1 where the document may be returned.
    """
    if not batches:
        return _seal(np.zeros(0, np.uint8))
    if isinstance(expression, CheckedFilter):
        checked = expression.expression
    else:
        checked = check_filter(expression, attribute_types(batches[0].schema))
    truth = _Evaluation(batches, find, ordinal, verify).truth(checked)
    return _seal(truth.fill_null(False).cast(pa.uint8()).to_numpy())


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """Evaluates the parts of a filter on the documents of one shard."""

    batches: Sequence[pa.RecordBatch]
    find: FindTokens | None
    ordinal: Callable[[str], int | None] | None
    verify: Callable[[Sequence[str]], None] | None

    def truth(self, expression: Filter) -> pa.ChunkedArray:
        """Return bool [N]: true, false, or null for unknown."""
        match expression:
            case Combination(operator, parts):
                combine = pc.and_kleene if operator == "and" else pc.or_kleene
                return functools.reduce(combine, (self.truth(part) for part in parts))
            case Negation(part):
                return pc.invert(self.truth(part))
            case Condition():
                return self._condition(expression)
            case TextQuery(_, Filter() as parsed):
                return self.truth(parsed)
            case TextTokens(tokens) if self.find is not None:
                return pa.chunked_array([pa.array(self.find(tokens).astype(bool))])
        raise AssertionError(f"unknown filter {type(expression)}")

    def _condition(self, condition: Condition) -> pa.ChunkedArray:
        if condition.name == DOC_ID:
            documents = sum(batch.num_rows for batch in self.batches)
            ids = condition.value if isinstance(condition.value, tuple) else (condition.value,)
            few = len(ids) <= max(1, documents // _PER_ID)
            if self.ordinal is not None and condition.operator in ("eq", "in") and few:
                places = {self.ordinal(str(doc_id)) for doc_id in ids} - {None}
                found = np.zeros(documents, bool)
                found[np.array([*places], np.int64)] = True
                return pa.chunked_array([pa.array(found)])
        return _compare(condition, self._column(condition.name))

    def _column(self, name: str) -> pa.ChunkedArray:
        column = DOC_ID if name == DOC_ID else attribute_column(name)
        if self.verify is not None:
            self.verify([column])
        return pa.chunked_array([batch.column(column) for batch in self.batches])


def _compare(condition: Condition, column: pa.ChunkedArray) -> pa.ChunkedArray:
    match condition.operator:
        case "is_null":
            return pc.is_null(column)
        case "in":
            found = pc.is_in(column, value_set=pa.array(condition.value, column.type))
            return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
        case "prefix":
            return pc.starts_with(column, pattern=condition.value)
    return _COMPARE[condition.operator](column, pa.scalar(condition.value, column.type))


def _seal(mask: Allowed) -> Allowed:
    mask.flags.writeable = False
    return mask
