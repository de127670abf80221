"""Expansion: terms that are activated by texts that do not contain them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lsr_prod.formats.sparse import SparseBatch

Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TextTerms:
    """Output terms that each of n texts contains, as the rows of a binary CSR matrix.

    Attributes:
        offsets: int64 [n + 1].
        terms: int32 [nnz], ascending in a row, no id twice.
    """

    offsets: npt.NDArray[np.int64]
    terms: Int32s

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
    """A term that is activated by texts that do not contain it.

    Attributes:
        term: the output term.
        expanded: texts that activate it and do not contain it.
        activated: texts that activate it.
        contained: texts that contain it.
        mean_weight: its mean weight in the texts that do not contain it.
    """

    term: str
    expanded: int
    activated: int
    contained: int
    mean_weight: float


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """Counts per output term over n texts.

    Attributes:
        texts: n.
        activated: int64 [V], texts that activate the term.
        contained: int64 [V], texts that contain it.
        expanded: int64 [V], texts that activate it and do not contain it.
        weight: float64 [V], sum of its weights in the texts of ``expanded``.
        term_share: share of the activated pairs (text, term) whose term the text does not contain.
        weight_share: share of the sum of all weights that those pairs have.
    """

    texts: int
    activated: npt.NDArray[np.int64]
    contained: npt.NDArray[np.int64]
    expanded: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    term_share: float
    weight_share: float


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
