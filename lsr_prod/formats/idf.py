"""Inverse document frequencies of output terms: what weighs a query that no model reads.

Inference-free queries (Geng et al., arXiv 2411.04403; Shen et al., arXiv 2504.14839): a query's vector is the binary
presence of its terms, times ``idf(t) = ln(1 + (N - df(t) + 0.5) / (df(t) + 0.5))``, where N documents have any term and
df(t) of them have t in their text, special tokens left out and nothing cut off. A document's score is
``sum_{t in q} idf(t) w_t(d)``. This is the IDF-aware penalty of 2411.04403 as well: with IDF in the matching function
and FLOPS on the weights w, a term's contribution u = idf w costs ``(mean u / idf)^2``, the more the commoner it is.

Its authors publish weights for the terms of their corpus only. A term of no document gets the weight of df = 0 here
(ours): a model may have expanded documents by it.

Counts are kept, not weights: those of several parts of a collection add up exactly.
"""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.bm25 import inverse_frequencies

__all__ = ["TermCounts"]


@dataclass(frozen=True, slots=True, eq=False)
class TermCounts:
    """How many documents have each output term in their text.

    Attributes:
        documents: N, those that have any.
        frequencies: int64 [V].
    """

    documents: int
    frequencies: npt.NDArray[np.int64]

    @classmethod
    def none(cls, vocabulary_size: int) -> "TermCounts":
        """Those of no document."""
        return cls(0, np.zeros(vocabulary_size, np.int64))

    def __add__(self, other: "TermCounts") -> "TermCounts":
        """Those of two sets of documents together."""
        return TermCounts(self.documents + other.documents, self.frequencies + other.frequencies)

    def with_texts(self, texts: Iterable[npt.NDArray[Any]]) -> "TermCounts":
        """The counts with some documents more.

        Args:
            texts: of each the ids of its terms, every one once.
        """
        found = [terms for terms in texts if len(terms)]
        if not found:
            return self
        size = len(self.frequencies)
        more = np.bincount(np.concatenate(found), minlength=size).astype(np.int64)
        return TermCounts(self.documents + len(found), self.frequencies + more)

    def weights(self) -> npt.NDArray[np.float32]:
        """The inverse document frequency of every term, float32 [V], above 0."""
        return inverse_frequencies(self.documents, self.frequencies).astype(np.float32)

    @property
    def unseen(self) -> float:
        """The weight of a term that no document has."""
        return float(inverse_frequencies(self.documents, np.zeros(1, np.int64))[0])

    def to_bytes(self) -> bytes:
        """A ``.npy`` of uint32 [V + 1]: the frequencies, then N."""
        buffer = io.BytesIO()
        np.lib.format.write_array(
            buffer, np.append(self.frequencies, self.documents).astype("<u4"), version=(1, 0), allow_pickle=False
        )
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, vocabulary_size: int, name: str) -> "TermCounts":
        """Read what ``to_bytes`` wrote.

        Args:
            data: the file.
            vocabulary_size: V.
            name: what the file is called, for the error.

        Raises:
            ArtifactError: it holds something else.
        """
        try:
            values = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
        except (ValueError, OSError) as error:
            raise ArtifactError(f"{name} is no array ({error}); build it again") from error
        if values.dtype != np.uint32 or values.shape != (vocabulary_size + 1,) or values.max() > values[-1]:
            raise ArtifactError(f"{name} has no counts of {vocabulary_size} terms; build it again")
        return cls(int(values[-1]), values[:-1].astype(np.int64))
