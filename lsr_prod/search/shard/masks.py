"""Filters as masks over the documents of a shard, computed once and cached."""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.formats.attributes import attribute_column, attribute_types
from lsr_prod.search.query.filter_types import check_filter
from lsr_prod.search.query.filters import DOC_ID, Combination, Condition, Filter, Negation

__all__ = ["Mask", "MaskCache", "evaluate"]

Allowed = npt.NDArray[np.uint8]

_COMPARE = {"eq": pc.equal, "gt": pc.greater, "ge": pc.greater_equal, "lt": pc.less, "le": pc.less_equal}


@dataclass(frozen=True, slots=True)
class Mask:
    """A set of documents of one shard.

    Attributes:
        allowed: uint8 [N], read-only, 1 for those in the set.
        ordinals: int64 [n], rising.
        vectors: offsets, terms and impacts of those documents, if they are few; see ``ForwardCopy.gather``.
    """

    allowed: Allowed
    ordinals: npt.NDArray[np.int64]
    vectors: tuple[npt.NDArray[Any], ...] = ()

    @classmethod
    def of(cls, allowed: Allowed) -> "Mask":
        """Return the set of documents for which ``allowed`` is 1; ``allowed`` becomes read-only."""
        return cls(_seal(allowed), np.flatnonzero(allowed))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays: tuple[npt.NDArray[Any], ...] = (self.allowed, self.ordinals, *self.vectors)
        return sum(array.nbytes for array in arrays)


def evaluate(expression: Filter, batches: Sequence[pa.RecordBatch]) -> Allowed:
    """Return the documents for which a filter is true.

    Args:
        expression: the filter.
        batches: record batches of ``docs.arrow``, in document order.

    Returns:
        uint8 [N], read-only: 1 where the document may be returned.

    Raises:
        QueryError: the filter does not fit the attributes.
    """
    if not batches:
        return _seal(np.zeros(0, np.uint8))
    checked = check_filter(expression, attribute_types(batches[0].schema))
    truth = _truth(checked, batches)
    return _seal(truth.fill_null(False).cast(pa.uint8()).to_numpy())


class MaskCache:
    """LRU cache of the masks of one opened shard. Safe to share between threads.

    If several threads need the same mask at once, one computes it and the others wait.

    Attributes:
        hits: masks found, or computed by another thread meanwhile.
        misses: masks computed.
        bytes: bytes of the cached masks.
    """

    def __init__(self, max_bytes: int) -> None:
        self.hits = self.misses = self.bytes = 0
        self._max_bytes = max_bytes
        self._masks: OrderedDict[str, Mask] = OrderedDict()
        self._computing: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: str, compute: Callable[[], Mask]) -> Mask:
        """Return the mask of ``key``, computed if it is not cached. A mask larger than ``max_bytes`` is not cached.

        Args:
            key: ``Filter.key`` of a checked filter.
            compute: computes the mask. If it raises, nothing is cached, and a waiting thread computes it itself.
        """
        mask = self._find(key)
        if mask is not None:
            return mask
        with self._lock:
            computing = self._computing.setdefault(key, threading.Lock())
        with computing:
            mask = self._find(key)
            if mask is not None:
                return mask
            try:
                mask = compute()
                self._keep(key, mask)
            finally:
                with self._lock:
                    self._computing.pop(key, None)
        return mask

    def _find(self, key: str) -> Mask | None:
        with self._lock:
            mask = self._masks.get(key)
            if mask is not None:
                self._masks.move_to_end(key)
                self.hits += 1
            return mask

    def _keep(self, key: str, mask: Mask) -> None:
        with self._lock:
            self.misses += 1
            if mask.nbytes > self._max_bytes or key in self._masks:
                return
            self._masks[key] = mask
            self.bytes += mask.nbytes
            while self.bytes > self._max_bytes:
                self.bytes -= self._masks.popitem(last=False)[1].nbytes


def _truth(expression: Filter, batches: Sequence[pa.RecordBatch]) -> pa.ChunkedArray:
    """Return bool [N]: true, false, or null for unknown."""
    match expression:
        case Combination(operator, parts):
            combine = pc.and_kleene if operator == "and" else pc.or_kleene
            return functools.reduce(combine, (_truth(part, batches) for part in parts))
        case Negation(part):
            return pc.invert(_truth(part, batches))
        case Condition():
            return _condition(expression, batches)
    raise AssertionError(f"unknown filter {type(expression)}")


def _condition(condition: Condition, batches: Sequence[pa.RecordBatch]) -> pa.ChunkedArray:
    name = DOC_ID if condition.name == DOC_ID else attribute_column(condition.name)
    column = pa.chunked_array([batch.column(name) for batch in batches])
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
