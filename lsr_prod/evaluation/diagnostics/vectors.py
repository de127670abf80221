"""Statistics of sparse vectors: postings lengths, weights per term, activated terms per text, dead terms."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.terms.surfaces import is_special


@dataclass(frozen=True, slots=True)
class PostingsLengths:
    """Lengths of the postings lists of all V output terms, empty lists included (esplade-pretraining, table 3)."""

    mean: float
    variance: float
    std: float


@dataclass(frozen=True, slots=True)
class TermScores:
    """Spread of the weights of single terms over the documents (esplade-pretraining, table 8).

    Attributes:
        std: standard deviation of the weights above 0 of a term, averaged over the counted terms; 0 without any.
        terms: number of terms that occur in enough documents.
    """

    std: float
    terms: int


@dataclass(frozen=True, slots=True)
class ActivatedTerms:
    """Number of activated terms per text, and their weights; 0 without texts.

    Attributes:
        texts: number of texts.
        empty: texts without an activated term.
        mean: mean number of activated terms per text (L0).
        std: its standard deviation (esplade-pretraining, table 9).
        p5: 5th percentile of the number.
        p50: median.
        p95: 95th percentile.
        max: largest number.
        activation_rate: share of the pairs (text, term) with a weight above 0.
        weight_mean: mean weight of an activated term.
        weight_max: largest weight.
    """

    texts: int
    empty: int
    mean: float
    std: float
    p5: float
    p50: float
    p95: float
    max: int
    activation_rate: float
    weight_mean: float
    weight_max: float


@dataclass(frozen=True, slots=True, eq=False)
class DeadTerms:
    """Output terms that no document activates.

    Attributes:
        ids: int64 [n], ascending.
        share: n / V.
        special: how many of them are spelled like special tokens (``[CLS]``, ``[unused7]``, ``<s>``).
    """

    ids: npt.NDArray[np.int64]
    share: float
    special: int


def activated_terms(vectors: SparseBatch, vocabulary_size: int) -> ActivatedTerms:
    """Return the statistics of activated terms per text."""
    if not len(vectors):
        return ActivatedTerms(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0)
    lengths = np.diff(vectors.offsets)
    p5, p50, p95 = np.percentile(lengths, [5, 50, 95]).tolist()
    return ActivatedTerms(
        texts=len(vectors),
        empty=int((lengths == 0).sum()),
        mean=float(lengths.mean()),
        std=float(lengths.std()),
        p5=p5,
        p50=p50,
        p95=p95,
        max=int(lengths.max()),
        activation_rate=float(lengths.mean()) / vocabulary_size,
        weight_mean=float(vectors.weights.mean(dtype=np.float64)) if len(vectors.weights) else 0.0,
        weight_max=float(vectors.weights.max(initial=0.0)),
    )


def dead_terms(frequencies: npt.NDArray[np.int64], vocabulary: Sequence[str]) -> DeadTerms:
    """Return the terms that no document activates."""
    ids = np.flatnonzero(frequencies == 0)
    special = sum(is_special(vocabulary[term]) for term in ids.tolist())
    return DeadTerms(ids, len(ids) / max(1, len(frequencies)), special)


def postings_lengths(documents: SparseBatch, vocabulary_size: int) -> PostingsLengths:
    """Return the moments of the lengths of postings lists over all terms of the vocabulary."""
    lengths = np.bincount(documents.terms, minlength=vocabulary_size).astype(np.float64)
    return PostingsLengths(float(lengths.mean()), float(lengths.var()), float(lengths.std()))


def term_count_std(vectors: SparseBatch) -> float:
    """Return the standard deviation of the number of terms per text (esplade-pretraining, table 9)."""
    return float(np.diff(vectors.offsets).std())


def term_scores(documents: SparseBatch, *, min_documents: int) -> TermScores:
    """Return the spread of the weights of terms that occur in ``min_documents`` documents or more."""
    counts = np.bincount(documents.terms)
    weights = documents.weights.astype(np.float64)
    first, second = np.bincount(documents.terms, weights), np.bincount(documents.terms, weights**2)
    counted = counts >= max(1, min_documents)
    n = counts[counted]
    variance = second[counted] / n - (first[counted] / n) ** 2
    return TermScores(float(np.sqrt(np.maximum(variance, 0)).mean()) if len(n) else 0.0, int(counted.sum()))
