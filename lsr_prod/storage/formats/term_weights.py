"""Weights of terms outside of models: inverse document frequencies, learned query weights, and BM25 of words.

Inference-free queries (Geng et al., arXiv 2411.04403; Shen et al., arXiv 2504.14839): a query's vector is the binary
presence of its terms, times ``idf(t) = ln(1 + (N - df(t) + 0.5) / (df(t) + 0.5))``, where N documents have any term and
df(t) of them have t in their text, without special tokens and without truncation. A document's score is
``sum_{t in q} idf(t) w_t(d)``. This is the IDF-aware penalty of 2411.04403 as well: with IDF in the matching function
and FLOPS on the weights w, a term's contribution u = idf w costs ``(mean u / idf)^2``: common terms cost more.

The authors publish weights only for terms that occur in their corpus. Here a term that occurs in no document has the
weight of df = 0, because a model may have expanded documents by it.

Counts are stored instead of weights: the counts of several parts of a collection add up exactly.

BM25 as impacts: the saturation of a word in a document is stored; its inverse frequency is applied per query.

A word of a document has the impact ``round(saturation / IMPACT_STEP)``, 1..255, where ``saturation`` is
tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / average_length)), which is between 0 and K1 + 1. A query multiplies
it by ``IMPACT_STEP`` and by the word's inverse frequency in the whole version, so that a shard's arrays do not depend
on the other shards, and the scores of all shards have one scale. The average length is fixed for a version.

Learned weights of output terms: the weights of inference-free queries with ``query_encoder: learned``.

A query's vector is the binary presence of its terms, times one trained weight per output term (Li-LSR, Nardini et al.,
arXiv 2505.01452). The weights are part of the model, so a model directory and a bundle contain them, and an index has
them in the copy of its bundle: versions of one bundle share them, and another table is another bundle digest.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lsr_prod.errors import ArtifactError
from lsr_prod.storage.formats.pages import npy_bytes, parse_npy

K1 = 1.2
B = 0.75
IMPACT_STEP = (K1 + 1) / 255
QUERY_WEIGHTS_FILE = "query_weights.npy"


def word_impacts(
    counts: np.typing.NDArray[Any], lengths: np.typing.NDArray[Any], average_length: float
) -> np.typing.NDArray[np.uint8]:
    """Return the impacts of words.

    Returns:
        uint8 [n], 1 or more.
    """
    saturation = counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths / average_length))
    return np.maximum(1, np.rint(saturation / IMPACT_STEP)).astype(np.uint8)


def inverse_frequencies(documents: int, frequencies: np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.float64]:
    """Return ln(1 + (N - n + 0.5) / (n + 0.5)), float64 [n], for words that n of N documents have."""
    return np.log1p((documents - frequencies + 0.5) / (frequencies + 0.5))


@dataclass(frozen=True, slots=True, eq=False)
class TermCounts:
    """Number of documents that have each output term in their text."""

    documents: int  # N, documents that have any term
    frequencies: np.typing.NDArray[np.int64]  # int64 [V], documents per term

    @classmethod
    def none(cls, vocabulary_size: int) -> "TermCounts":
        """Return the counts of no document."""
        return cls(0, np.zeros(vocabulary_size, np.int64))

    def __add__(self, other: "TermCounts") -> "TermCounts":
        """Return the counts of two disjoint sets of documents."""
        return TermCounts(self.documents + other.documents, self.frequencies + other.frequencies)

    def with_texts(self, texts: Iterable[np.typing.NDArray[Any]]) -> "TermCounts":
        """Return the counts with some more documents."""
        found = [terms for terms in texts if len(terms)]
        if not found:
            return self
        more = np.bincount(np.concatenate(found), minlength=len(self.frequencies)).astype(np.int64)
        return TermCounts(self.documents + len(found), self.frequencies + more)

    def weights(self) -> np.typing.NDArray[np.float32]:
        """Return the inverse document frequency of every term, float32 [V], above 0."""
        return inverse_frequencies(self.documents, self.frequencies).astype(np.float32)

    @property
    def unseen(self) -> float:
        """Weight of a term that no document has."""
        return float(inverse_frequencies(self.documents, np.zeros(1, np.int64))[0])

    def to_bytes(self) -> bytes:
        """Return the content of a ``.npy`` of uint32 [V + 1]: the frequencies, then N."""
        return npy_bytes(np.append(self.frequencies, self.documents).astype("<u4"))

    @classmethod
    def from_bytes(cls, data: bytes, vocabulary_size: int, name: str) -> "TermCounts":
        """Read what ``to_bytes`` wrote."""
        values = parse_npy(data, name, "build it again")
        if values.dtype != np.uint32 or values.shape != (vocabulary_size + 1,) or values.max() > values[-1]:
            raise ArtifactError(f"{name} has no counts of {vocabulary_size} terms; build it again")
        return cls(int(values[-1]), values[:-1].astype(np.int64))


def weights_to_bytes(weights: np.typing.NDArray[Any]) -> bytes:
    """Return the content of ``query_weights.npy``: float32 [V]."""
    return npy_bytes(weights.astype("<f4"))


def weights_from_bytes(data: bytes, vocabulary_size: int, name: str) -> np.typing.NDArray[np.float32]:
    """Read what ``weights_to_bytes`` wrote.

    Returns:
        float32 [V], finite and 0 or more; a term of weight 0 is never in a query.
    """
    values = parse_npy(data, name, "copy it again")
    if values.dtype != np.float32 or values.shape != (vocabulary_size,):
        raise ArtifactError(
            f"{name} has {values.dtype} {list(values.shape)}, not {vocabulary_size} weights; copy it again"
        )
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ArtifactError(f"{name} has weights that are not finite or below 0; train the model again")
    return values
