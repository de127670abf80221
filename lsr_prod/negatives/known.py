"""Every positive of a query, wherever in the data it stands: 16 bytes each, for queries of more than one row."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.config import MineSettings
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.negatives.keys import id_key, text_key
from lsr_prod.negatives.pairs import read_pairs

__all__ = ["KnownPositives", "Survey", "survey_slice"]

Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Survey:
    """What a slice holds.

    Attributes:
        rows: rows in it.
        bad: those that are no pairs, by reason.
        queries: uint64 [n], key of the query's text for every name of a positive.
        positives: uint64 [n], key of the positive's text or id.
        rows_of: uint64 [good rows], key of the query's text of every row.
    """

    rows: int
    bad: Counter[str]
    queries: Keys
    positives: Keys
    rows_of: Keys


def survey_slice(piece: Slice, settings: MineSettings, options: dict[str, str]) -> Survey:
    """Read a slice once, before anything is mined.

    Raises:
        SourceError: its file cannot be read.
    """
    rows, bad = 0, Counter[str]()
    queries: list[int] = []
    positives: list[int] = []
    rows_of: list[int] = []
    for _, pair in read_pairs(piece, settings, options):
        rows += 1
        if isinstance(pair, BadRow):
            bad[pair.reason] += 1
            continue
        query = text_key(pair.query)
        rows_of.append(query)
        names = [id_key(pair.positive_id)] if pair.positive_id else []
        names += [text_key(pair.positive)] if pair.positive else []
        queries += [query] * len(names)
        positives += names
    return Survey(rows, bad, *(np.array(keys, np.uint64) for keys in (queries, positives, rows_of)))


@dataclass(frozen=True, slots=True)
class KnownPositives:
    """Keys of positives, sorted by the key of their query. Made of arrays, so that processes can share it.

    A key stands for a text or an id. That two share a key is all but impossible, and would cost one candidate.

    Attributes:
        queries: uint64 [n], rising.
        positives: uint64 [n].
    """

    queries: Keys
    positives: Keys

    @classmethod
    def of(cls, surveys: Iterable[Survey]) -> "KnownPositives":
        """Those of queries that stand in more than one row; of others, the row itself knows its positive."""
        everything = list(surveys)
        queries, positives, rows_of = (
            _joined([getattr(survey, name) for survey in everything]) for name in ("queries", "positives", "rows_of")
        )
        found, counts = np.unique(rows_of, return_counts=True)
        kept = np.isin(queries, found[counts > 1])
        queries, positives = queries[kept], positives[kept]
        order = np.lexsort((positives, queries))
        return cls(queries[order], positives[order])

    def of_query(self, query: str) -> frozenset[int]:
        """Keys of the texts and ids of all positives of a query; empty where one row holds them all."""
        key = np.uint64(text_key(query))
        start, stop = (np.searchsorted(self.queries, key, side) for side in ("left", "right"))
        return frozenset(self.positives[start:stop].tolist())


def _joined(parts: Sequence[Keys]) -> Keys:
    return np.concatenate([np.empty(0, np.uint64), *parts])
