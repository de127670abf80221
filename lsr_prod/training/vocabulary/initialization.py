"""Initialization of the rows of a new vocabulary from the rows of the old one (vocabulary-transfer, 4.2.2).

To add an initialization: a function with the signature of those in ``INITIALIZATIONS``, a line there, and its name
in ``TransferVocabularySettings.initialization`` (``lsr_prod.config.vocabulary``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.surfaces import Terms, align
from lsr_prod.inference.terms.words import term_pieces
from lsr_prod.model import SparseEncoder
from lsr_prod.training.vocabulary.combination import Combination, copy_overlap, semantic, subtoken
from lsr_prod.training.vocabulary.target import TargetModel, target_terms


@dataclass(frozen=True, slots=True)
class Initialization:
    """A combination of old rows, and the value of the rows without entries."""

    combination: Combination  # [V', V]
    center: Tensor  # old rows whose mean fills the rows without entries
    # fill rows without entries from a normal distribution with mean 0 and the standard deviation of the old rows
    # instead (ours)
    drawn: bool = False
    seed: int = 0  # of the random rows

    def rows(self, matrix: Tensor) -> Tensor:
        """Return new rows [V', d] from old rows [V, d]."""
        matrix, empty = matrix.detach(), self.combination.empty
        new = self.combination.apply(matrix)
        if self.drawn:
            generator = torch.Generator().manual_seed(self.seed)
            drawn = torch.randn(int(empty.sum()), matrix.shape[1], generator=generator)
            new[empty] = drawn.to(matrix.dtype) * matrix.std()
        else:
            new[empty] = matrix[self.center].mean(dim=0)
        return new

    def values(self, vector: Tensor) -> Tensor:
        """Return new values [V'] from old values [V], such as those of a bias."""
        return self.rows(vector[:, None])[:, 0]


@dataclass(frozen=True, slots=True)
class VocabularyPair:
    """The old and the new vocabulary of a transfer: all that an initialization can use."""

    tokenizer: PreTrainedTokenizerFast  # of the source
    terms: Sequence[str]  # the V' terms of the target
    aligned: NDArray[np.int64]  # int64 [V'], the source's row of each term of the target, or -1
    target: TargetModel | None  # embeddings of the target's terms; None: not read

    @property
    def overlap(self) -> Tensor:
        """The source's rows of the terms that both vocabularies have, int64 [O]."""
        rows = torch.from_numpy(self.aligned[self.aligned >= 0])
        if not len(rows):
            raise ConfigError(
                "target", "it has no token in common with the model", "take another target, or random_all"
            )
        return rows


def initialize(
    encoder: SparseEncoder,
    tokenizer: PreTrainedTokenizerFast,
    strategy: str,
    target: TargetModel | None,
    *,
    seed: int,
) -> tuple[NDArray[np.int64], Initialization]:
    """Align two vocabularies and decide how the rows of the second are made from those of the first.

    Returns:
        int64 [V'], the source's row of each token of the target or -1, and the initialization.
    """
    terms = target_terms(tokenizer)
    aligned = align(Terms.of(encoder.tokenizer, encoder.vocabulary), Terms.of(tokenizer, terms))
    pair = VocabularyPair(encoder.tokenizer, terms, aligned, target)
    return aligned, INITIALIZATIONS[strategy](pair, seed)


def _semantic(pair: VocabularyPair, seed: int) -> Initialization:
    overlap = pair.overlap
    assert pair.target is not None
    return Initialization(semantic(pair.aligned, pair.target.embeddings), overlap, seed=seed)


def _subtoken(pair: VocabularyPair, seed: int) -> Initialization:
    overlap = pair.overlap
    return Initialization(
        copy_overlap(pair.aligned, subtoken(term_pieces(pair.terms, pair.tokenizer))), overlap, seed=seed
    )


def _mean(pair: VocabularyPair, seed: int) -> Initialization:
    return Initialization(copy_overlap(pair.aligned), pair.overlap, seed=seed)


def _random_new(pair: VocabularyPair, seed: int) -> Initialization:
    return Initialization(copy_overlap(pair.aligned), pair.overlap, drawn=True, seed=seed)


def _random_all(pair: VocabularyPair, seed: int) -> Initialization:
    none = torch.empty(0, dtype=torch.int64)
    return Initialization(copy_overlap(np.full_like(pair.aligned, -1)), none, drawn=True, seed=seed)


INITIALIZATIONS: dict[str, Callable[[VocabularyPair, int], Initialization]] = {
    "semantic": _semantic,
    "subtoken": _subtoken,
    "mean": _mean,
    "random_new": _random_new,
    "random_all": _random_all,
}
"""The initializations by the value of the setting ``initialization``; called with the vocabularies and a seed."""
