"""Small sizes of plans: a night of thirty short rows has several waves, cells and slices.

Only the unit changes. A size of a plan is a number of megabytes; here it is a number of blocks of 250 bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from lsr_prod.config import EncodeSettings
from lsr_prod.encoding.plans import encode_plan, plan_header
from lsr_prod.encoding.plans.plan_header import Sizes

__all__ = ["SmallSizes", "small_plans"]

_UNIT = 250  # bytes
_MEGABYTE = 1_000_000


class _Blocks(int):
    """Number of blocks, in a setting of megabytes."""

    def __mul__(self, factor: int) -> int:
        return int(self) * factor * _UNIT // _MEGABYTE


@dataclass(frozen=True, slots=True)
class SmallSizes:
    """Sizes of the plans of a life, in blocks."""

    wave: int
    cell: int
    slice: int


@contextmanager
def small_plans(sizes: SmallSizes) -> Iterator[None]:
    """Let new plans have these sizes."""

    def choose(source_bytes: int, actors: int, encode: EncodeSettings, buckets: int | None = None) -> Sizes:
        del source_bytes, actors
        chosen = buckets or encode.buckets
        assert chosen is not None
        return Sizes(chosen, _Blocks(sizes.wave), _Blocks(sizes.cell), _Blocks(sizes.slice))

    def wave_bytes(size: Any) -> int:
        return int(size) * _UNIT

    with (
        patch.object(encode_plan, "choose_sizes", choose),
        patch.object(plan_header, "choose_sizes", choose),
        patch.object(encode_plan, "_wave_bytes", wave_bytes),
    ):
        yield
