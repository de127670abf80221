"""Queries in the form that shards match."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from lsr_prod.search.query.filters import Filter


@dataclass(frozen=True, slots=True)
class WordQuery:
    """Words of a text that shards match by BM25; the ids of a word differ from shard to shard.

    Attributes:
        names: t distinct words, as the index stores them.
        weights: float32 [t], score per impact unit.
        counted: whether they count towards ``ShardQuery.required``.
    """

    names: tuple[str, ...]
    weights: npt.NDArray[np.float32]
    counted: bool


@dataclass(frozen=True, slots=True)
class ShardQuery:
    """A query in the form that shards match.

    Attributes:
        ids: int32 [q], terms of the vocabulary, in the query's order.
        weights: float32 [q], score per impact unit.
        counted: uint8 [q], 1 for terms that count towards ``required``.
        required: minimum number of counted terms that a document must share, 1 or more.
        k: hits wanted.
        floor: lowest score of a hit.
        exhaustive: count every match, at the price of skipping nothing.
        deadline: ``time.monotonic()`` after which to stop; None: no deadline.
        filter: selects the documents that may be found; None: all.
        words: matched in addition to the terms; None: no words.
    """

    ids: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    counted: npt.NDArray[np.uint8]
    required: int
    k: int
    floor: float = 0.0
    exhaustive: bool = False
    deadline: float | None = None
    filter: "Filter | None" = None
    words: WordQuery | None = None
