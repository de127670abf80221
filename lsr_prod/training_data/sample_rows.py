"""Some tokenized rows in memory, in the place of a training set."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lsr_prod.training_data.training_set import Example

__all__ = ["SampleRows"]


class SampleRows:
    """Some rows in memory, in the place of a training set.

    Attributes:
        rows: their number.
        lengths: int32 [rows], tokens of the longest text of each.
    """

    def __init__(self, examples: Sequence[Example]) -> None:
        """Keep the rows."""
        self._examples = list(examples)
        self.rows = len(self._examples)
        longest = [max(map(len, (one.query, *one.documents))) for one in self._examples]
        self.lengths: npt.NDArray[np.int32] = np.array(longest, np.int32)

    def examples(self, rows: npt.NDArray[np.int64]) -> list[Example]:
        """Return rows by number."""
        return [self._examples[row] for row in rows]
