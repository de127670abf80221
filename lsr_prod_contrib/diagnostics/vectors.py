"""Statistics of sparse vectors: weights per term, activated terms per text, expanded and dead terms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lsr_prod.inference.terms.surfaces import is_special
from lsr_prod.storage.formats.sparse import SparseBatch

Int32s = npt.NDArray[np.int32]


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


def dead_terms(frequencies: npt.NDArray[np.int64], vocabulary: Sequence[str]) -> dict[str, Any]:
    """Return the number, the share and the list of the terms that no document activates, as plain values.

    ``special`` is the number of those that are spelled like special tokens (``[CLS]``, ``[unused7]``, ``<s>``).
    """
    dead = [vocabulary[term] for term in np.flatnonzero(frequencies == 0).tolist()]
    return {
        "terms": len(dead),
        "share": len(dead) / max(1, len(frequencies)),
        "special": sum(map(is_special, dead)),
        "list": dead,
    }


def term_scores(documents: SparseBatch, *, min_documents: int) -> TermScores:
    """Return the spread of the weights of terms that occur in ``min_documents`` documents or more."""
    counts = np.bincount(documents.terms)
    weights = documents.weights.astype(np.float64)
    first, second = np.bincount(documents.terms, weights), np.bincount(documents.terms, weights**2)
    counted = counts >= max(1, min_documents)
    n = counts[counted]
    variance = second[counted] / n - (first[counted] / n) ** 2
    return TermScores(float(np.sqrt(np.maximum(variance, 0)).mean()) if len(n) else 0.0, int(counted.sum()))


@dataclass(frozen=True, slots=True)
class TextTerms:
    """Output terms that each of n texts contains, as the rows of a binary CSR matrix."""

    offsets: npt.NDArray[np.int64]  # int64 [n + 1]
    terms: Int32s  # int32 [nnz], ascending in a row, no id twice

    @classmethod
    def of(cls, rows: Sequence[Int32s]) -> "TextTerms":
        """Join the rows of ``TermReader.documents``."""
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return cls(offsets, np.concatenate([np.zeros(0, np.int32), *rows]).astype(np.int32))

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.offsets) - 1

    def frequencies(self, vocabulary_size: int) -> npt.NDArray[np.int64]:
        """Return int64 [V]: the number of texts that contain each term."""
        return np.bincount(self.terms, minlength=vocabulary_size).astype(np.int64)


class ExpandedTerm(NamedTuple):
    """A term that is activated by texts that do not contain it."""

    term: str  # the output term
    expanded: int  # texts that activate it and do not contain it
    activated: int  # texts that activate it
    contained: int  # texts that contain it
    mean_weight: float  # its mean weight in the texts that do not contain it


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """Counts per output term over n texts."""

    texts: int  # n
    activated: npt.NDArray[np.int64]  # int64 [V], texts that activate the term
    contained: npt.NDArray[np.int64]  # int64 [V], texts that contain it
    expanded: npt.NDArray[np.int64]  # int64 [V], texts that activate it and do not contain it
    weight: npt.NDArray[np.float64]  # float64 [V], sum of its weights in the texts of ``expanded``
    term_share: float  # share of the activated pairs (text, term) whose term the text does not contain
    weight_share: float  # share of the sum of all weights that those pairs have


def find_expanded(vectors: SparseBatch, contained: TextTerms, vocabulary_size: int) -> npt.NDArray[np.bool_]:
    """Return bool [nnz]: whether each activated pair (text, term) of the vectors is an expansion."""
    if len(vectors) != len(contained):
        raise ValueError(f"there are {len(vectors)} vectors for {len(contained)} texts")
    rows = np.arange(len(contained), dtype=np.int64)
    pairs = np.repeat(rows, np.diff(vectors.offsets)) * vocabulary_size + vectors.terms
    present = np.repeat(rows, np.diff(contained.offsets)) * vocabulary_size + contained.terms  # ascending
    return ~np.isin(pairs, present, assume_unique=True)


def count_expansion(vectors: SparseBatch, contained: TextTerms, vocabulary_size: int) -> Expansion:
    """Count per term how often texts activate it without containing it; see ``find_expanded``."""
    new = find_expanded(vectors, contained, vocabulary_size)
    weights = vectors.weights.astype(np.float64)
    total = float(weights.sum())
    return Expansion(
        texts=len(vectors),
        activated=np.bincount(vectors.terms, minlength=vocabulary_size).astype(np.int64),
        contained=contained.frequencies(vocabulary_size),
        expanded=np.bincount(vectors.terms[new], minlength=vocabulary_size).astype(np.int64),
        weight=np.bincount(vectors.terms[new], weights[new], minlength=vocabulary_size).astype(np.float64),
        term_share=float(new.mean()) if len(new) else 0.0,
        weight_share=float(weights[new].sum()) / total if total else 0.0,
    )


def most_expanded(found: Expansion, vocabulary: Sequence[str], top: int) -> list[ExpandedTerm]:
    """Return the terms that are expanded in most texts, ties by ascending id."""
    order = np.argsort(-found.expanded, kind="stable")[:top]
    return [
        ExpandedTerm(
            vocabulary[term],
            int(found.expanded[term]),
            int(found.activated[term]),
            int(found.contained[term]),
            float(found.weight[term] / found.expanded[term]),
        )
        for term in order[found.expanded[order] > 0].tolist()
    ]
