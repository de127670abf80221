"""Examples in memory in the place of a training set."""

from collections.abc import Sequence

import numpy as np

from lsr_prod.training_data.text_keys import text_keys
from lsr_prod.training_data.training_set import Example


class MemoryRows:
    """The part of ``TrainingSet`` that trainers use; no query has several positives."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.rows, self._examples = len(examples), list(examples)
        self.lengths = np.array([max(map(len, one.documents)) for one in examples], np.int32)

    def examples(self, rows: np.ndarray) -> list[Example]:
        return [self._examples[row] for row in rows]

    def keys(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys of the queries and of the positives."""
        some = self.examples(rows)
        return text_keys([one.query for one in some]), text_keys([one.documents[0] for one in some])

    def known_positives(self, _queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.empty(0, np.int64), np.empty(0, np.int64)
