"""Survey of the pairs: counts of rows, and the positives of queries that have several rows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.config import MineSettings
from lsr_prod.corpus.pinned_file import Slice
from lsr_prod.corpus.rows import BadRow
from lsr_prod.training.data.row_jobs import Survey
from lsr_prod.training.negatives.inputs import read_pairs
from lsr_prod.training.negatives.own import SKETCH_SIZE, Fingerprint
from lsr_prod.training.negatives.rules import id_key, text_key

Keys = npt.NDArray[np.uint64]
Sketches = npt.NDArray[np.uint32]
_MOST_SKETCHES = 256  # that are compared per query; all keys are


@dataclass(frozen=True, slots=True)
class PairSurvey(Survey):
    """Counts and keys of one slice."""

    queries: Keys  # uint64 [n], key of the query text, parallel to ``positives``
    positives: Keys  # uint64 [n], key of the text or of the id of a positive
    sketches: Sketches  # uint32 [n, SKETCH_SIZE], of the text of a positive; zeros for an id
    rows_of: Keys  # uint64 [good rows], key of the query text of every good row


def survey_slice(piece: Slice, settings: MineSettings, options: dict[str, str]) -> PairSurvey:
    """Count the rows of a slice and collect the keys and sketches of its positives."""
    rows, bad = 0, Counter[str]()
    queries: list[int] = []
    positives: list[int] = []
    sketches: list[list[int]] = []
    rows_of: list[int] = []
    for _, pair in read_pairs(piece, settings, options):
        rows += 1
        if isinstance(pair, BadRow):
            bad[pair.reason] += 1
            continue
        query = text_key(pair.query)
        rows_of.append(query)
        names = [(id_key(pair.positive_id), [0] * SKETCH_SIZE)] if pair.positive_id else []
        names += [(text_key(pair.positive), Fingerprint.of(pair.positive).sketch())] if pair.positive else []
        for key, sketch in names:
            queries.append(query)
            positives.append(key)
            sketches.append(sketch)
    of_queries, of_positives, of_rows = (np.array(keys, np.uint64) for keys in (queries, positives, rows_of))
    sketched = np.array(sketches, np.uint32).reshape(-1, SKETCH_SIZE)
    return PairSurvey(rows, bad, of_queries, of_positives, sketched, of_rows)


@dataclass(frozen=True, slots=True)
class KnownPositives:
    """Positives sorted by the key of their query, in arrays that processes can share.

    A key represents a text or an id. A collision is very unlikely and would only drop one candidate.
    """

    queries: Keys  # uint64 [n], ascending
    positives: Keys  # uint64 [n]
    sketches: Sketches  # uint32 [n, SKETCH_SIZE]

    @classmethod
    def of(cls, surveys: Iterable[PairSurvey]) -> "KnownPositives":
        """Collect the positives of queries in more than one row; a query in one row has no other positives."""
        everything = list(surveys)
        found, counts = np.unique(_joined([survey.rows_of for survey in everything]), return_counts=True)
        kept = [(survey, np.isin(survey.queries, found[counts > 1])) for survey in everything]
        queries, positives = (
            _joined([getattr(survey, name)[rows] for survey, rows in kept]) for name in ("queries", "positives")
        )
        no_rows = np.empty((0, SKETCH_SIZE), np.uint32)
        sketches = np.concatenate([no_rows, *(survey.sketches[rows] for survey, rows in kept)])
        # A positive in several rows of a query is kept once.
        order = np.lexsort((positives, queries))
        queries, positives = queries[order], positives[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = (queries[1:] != queries[:-1]) | (positives[1:] != positives[:-1])
        return cls(queries[new], positives[new], sketches[order][new])

    def of_query(self, query: str) -> tuple[frozenset[int], list[Fingerprint]]:
        """Return the keys of the texts and ids of all positives of a query, and sketches of at most 256 texts.

        Both are empty for a query of one row.
        """
        key = np.uint64(text_key(query))
        rows = slice(*(np.searchsorted(self.queries, key, side) for side in ("left", "right")))
        sketches = self.sketches[rows]
        sketches = sketches[sketches.any(axis=1)][:_MOST_SKETCHES]
        return frozenset(self.positives[rows].tolist()), [Fingerprint.from_sketch(one) for one in sketches.tolist()]


def _joined(parts: Sequence[Keys]) -> Keys:
    return np.concatenate([np.empty(0, np.uint64), *parts])
