"""Some tokenized rows in memory, in the place of a training set."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from lsr_prod.training.data.training_set import Example


def text_keys(texts: Sequence[npt.NDArray[np.int32]]) -> npt.NDArray[np.int64]:
    """Return the key of each text: 8 bytes of BLAKE2b of its token ids.

    Texts that differ only after the maximum length have the same token ids, so the model gives them the same vector.
    Among 1e8 different texts, the probability that any two have the same key is 3e-4.

    Returns:
        int64 [n], the same on every machine.
    """
    digests = b"".join(blake2b(text.astype("<i4", copy=False).tobytes(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<i8").astype(np.int64)


class SampleRows:
    """Some rows in memory, in the place of a training set.

    Attributes:
        rows: their number.
        lengths: int32 [rows], tokens of the longest text of each.
    """

    def __init__(self, examples: Sequence[Example]) -> None:
        self._examples = list(examples)
        self.rows = len(self._examples)
        longest = [max(map(len, (one.query, *one.documents))) for one in self._examples]
        self.lengths: npt.NDArray[np.int32] = np.array(longest, np.int32)
        self._query_keys = text_keys([one.query for one in self._examples])
        self._positive_keys = text_keys([one.documents[0] for one in self._examples])

    def examples(self, rows: npt.NDArray[np.int64]) -> list[Example]:
        """Return rows by number."""
        return [self._examples[row] for row in rows]

    def keys(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the keys of the queries and of the positives of rows, two arrays int64 [n]."""
        return self._query_keys[rows], self._positive_keys[rows]

    def known_positives(self, queries: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the positives of queries among these rows, as ``TrainingSet.known_positives`` does."""
        places, rows = (queries[:, None] == self._query_keys).nonzero()
        return places, self._positive_keys[rows]
