"""Positives of queries that occur in several rows, collected from all of the data: 16 bytes per positive."""

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
from lsr_prod.training_data.row_jobs.job import Survey

Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class PairSurvey(Survey):
    """Counts and keys of one slice.

    Attributes:
        queries: uint64 [n], key of the query text, parallel to ``positives``.
        positives: uint64 [n], key of the text or of the id of a positive.
        rows_of: uint64 [good rows], key of the query text of every good row.
    """

    queries: Keys
    positives: Keys
    rows_of: Keys


def survey_slice(piece: Slice, settings: MineSettings, options: dict[str, str]) -> PairSurvey:
    """Count the rows of a slice and collect the keys of its positives."""
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
    return PairSurvey(rows, bad, *(np.array(keys, np.uint64) for keys in (queries, positives, rows_of)))


@dataclass(frozen=True, slots=True)
class KnownPositives:
    """Keys of positives, sorted by the key of their query, in arrays that processes can share.

    A key represents a text or an id. A collision is very unlikely and would only drop one candidate.

    Attributes:
        queries: uint64 [n], ascending.
        positives: uint64 [n].
    """

    queries: Keys
    positives: Keys

    @classmethod
    def of(cls, surveys: Iterable[PairSurvey]) -> "KnownPositives":
        """Collect the positives of queries in more than one row; a query in one row has no other positives."""
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
        """Return the keys of the texts and ids of all positives of a query; empty for a query of one row."""
        key = np.uint64(text_key(query))
        start, stop = (np.searchsorted(self.queries, key, side) for side in ("left", "right"))
        return frozenset(self.positives[start:stop].tolist())


def _joined(parts: Sequence[Keys]) -> Keys:
    return np.concatenate([np.empty(0, np.uint64), *parts])
