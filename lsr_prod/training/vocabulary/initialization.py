"""Initialization of the rows of a new vocabulary as sums of rows of the old one (vocabulary-transfer, 4.2.2).

The same sparse matrix makes the rows of input embeddings, output matrix and bias.

To add an initialization: a case in ``initialize``, and its name in ``TransferVocabularySettings.initialization``
(``lsr_prod.config.model``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import embedding_bag, normalize
from transformers import PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.surfaces import Terms, align
from lsr_prod.inference.terms.words import term_pieces
from lsr_prod.model import SparseEncoder
from lsr_prod.training.vocabulary.target import TargetModel, target_terms

_BLOCK = 512  # new rows whose similarities are in memory at once
_SUPPORT = 64  # scores that are sorted in the first attempt


@dataclass(frozen=True, slots=True)
class Combination:
    """Sparse matrix [V', V] of the weights with which old rows add up to each new row."""

    starts: torch.Tensor  # int64 [V' + 1], the position of each row's first entry
    rows: torch.Tensor  # int64 [entries], old rows
    weights: torch.Tensor  # float32 [entries]

    @classmethod
    def of_lists(cls, rows: Sequence[Sequence[int]], weights: Sequence[Sequence[float]]) -> "Combination":
        """Create the matrix from the entries of each row."""
        return cls(
            _starts(torch.tensor([len(entries) for entries in rows], dtype=torch.int64)),
            torch.tensor([row for entries in rows for row in entries], dtype=torch.int64),
            torch.tensor([weight for entries in weights for weight in entries], dtype=torch.float32),
        )

    @property
    def empty(self) -> torch.Tensor:
        """Mask of the rows without entries, bool [V']."""
        return self.starts.diff() == 0

    def apply(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return new rows [V', d] of old rows [V, d]; a copied row is equal to the bit, a row without entries is 0."""
        matrix = matrix.detach()
        weights = self.weights.to(matrix.dtype)
        return embedding_bag(self.rows, matrix, self.starts[:-1], mode="sum", per_sample_weights=weights)

    def entries(self, row: int) -> list[tuple[int, float]]:
        """Return the old rows that make up a new row and their weights, heaviest first."""
        part = slice(int(self.starts[row]), int(self.starts[row + 1]))
        found = zip(self.rows[part].tolist(), self.weights[part].tolist(), strict=True)
        return sorted(found, key=lambda entry: -entry[1])


def copy_overlap(aligned: NDArray[np.int64], new: Combination | None = None) -> Combination:
    """Copy the rows of the overlap, and take the other rows from another combination."""
    old = torch.from_numpy(aligned)
    shared = old >= 0
    sizes = torch.zeros_like(old) if new is None else new.starts.diff()
    starts = _starts(torch.where(shared, 1, sizes))
    rows, weights = torch.empty(int(starts[-1]), dtype=torch.int64), torch.ones(int(starts[-1]))
    rows[starts[:-1][shared]] = old[shared]
    if new is not None:
        into, taken = (~shared).repeat_interleave(starts.diff()), (~shared).repeat_interleave(sizes)
        rows[into], weights[into] = new.rows[taken], new.weights[taken]
    return Combination(starts, rows, weights)


def semantic(aligned: NDArray[np.int64], target_embeddings: torch.Tensor) -> Combination:
    """Combine the rows of the tokens that are most similar in the target model's embeddings (eq. 7 to 9).

    Sparsemax turns the cosines of a new token with all tokens of the overlap into convex weights; the new row is the
    weighted sum of their old rows. Rows of the overlap are copied. Peak memory is 512 x overlap similarities.
    """
    overlap, fresh = np.flatnonzero(aligned >= 0), np.flatnonzero(aligned < 0)
    directions = normalize(target_embeddings.detach().float(), dim=1)
    anchors = directions[torch.from_numpy(overlap)]  # [O, d']
    counts = np.zeros(len(aligned), dtype=np.int64)
    columns, weights = [torch.empty(0, dtype=torch.int64)], [torch.empty(0)]
    for start in range(0, len(fresh), _BLOCK):
        block = fresh[start : start + _BLOCK]
        near, shares = sparsemax_support(directions[torch.from_numpy(block)] @ anchors.t())  # [512, k]
        counts[block] = (shares > 0).sum(dim=1).numpy()
        columns.append(near[shares > 0])
        weights.append(shares[shares > 0])
    rows = torch.from_numpy(aligned[overlap])[torch.cat(columns)]
    return copy_overlap(aligned, Combination(_starts(torch.from_numpy(counts)), rows, torch.cat(weights)))


def subtoken(pieces: Sequence[Sequence[int]]) -> Combination:
    """Average the old rows of the sub-tokens of each new term (4.2.2; esplade-pretraining, B.1)."""
    return Combination.of_lists(pieces, [[1 / len(entries) for _ in entries] for entries in pieces])


def _starts(counts: torch.Tensor) -> torch.Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def sparsemax(scores: torch.Tensor) -> torch.Tensor:
    """Return the weights [B, n] nearest to the scores of each row, at least 0 and with sum 1 (eq. 8)."""
    columns, weights = sparsemax_support(scores)
    return torch.zeros_like(scores).scatter_(1, columns, weights)


def sparsemax_support(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights of ``sparsemax`` as columns [B, k] and values, descending; 0 beyond a row's support.

    Only the k highest scores of a row are sorted. They are sufficient if the threshold of the row is above the lowest
    of them; k grows until this holds for every row, so the result is exact.
    """
    n = scores.shape[1]
    k = min(_SUPPORT, n)
    while True:
        highest, columns = scores.topk(k, dim=1)
        threshold = _threshold(highest.double())  # [B, 1]
        if k == n or bool((threshold >= highest[:, -1:]).all()):
            return columns, (highest - threshold).clamp_(min=0).to(scores.dtype)
        k = min(4 * k, n)


def _threshold(highest: torch.Tensor) -> torch.Tensor:
    """Return the threshold of each row [B, 1], given its highest scores [B, k] in descending order."""
    sums = highest.cumsum(dim=1) - 1
    counts = torch.arange(1, highest.shape[1] + 1, dtype=highest.dtype, device=highest.device)
    support = (counts * highest > sums).sum(dim=1, keepdim=True)  # [B, 1], at least 1
    return sums.gather(1, support - 1) / support


@dataclass(frozen=True, slots=True)
class Initialization:
    """A combination of old rows, and the value of the rows without entries."""

    combination: Combination  # [V', V]
    center: torch.Tensor  # old rows whose mean fills the rows without entries
    # fill rows without entries from a normal distribution with mean 0 and the standard deviation of the old rows
    # instead (ours)
    drawn: bool = False
    seed: int = 0  # of the random rows

    def rows(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return new rows [V', d] from old rows [V, d]."""
        matrix, empty = matrix.detach(), self.combination.empty
        new = self.combination.apply(matrix)
        if self.drawn:
            drawn = torch.randn(int(empty.sum()), matrix.shape[1], generator=torch.Generator().manual_seed(self.seed))
            new[empty] = drawn.to(matrix.dtype) * matrix.std()
        else:
            new[empty] = matrix[self.center].mean(dim=0)
        return new

    def values(self, vector: torch.Tensor) -> torch.Tensor:
        """Return new values [V'] from old values [V], such as those of a bias."""
        return self.rows(vector[:, None])[:, 0]


def initialize(
    encoder: SparseEncoder, tokenizer: PreTrainedTokenizerFast, strategy: str, target: TargetModel | None, *, seed: int
) -> tuple[NDArray[np.int64], Initialization]:
    """Return the source's row of each token of the target, int64 [V'], -1 for none; and how the new rows are made."""
    terms = target_terms(tokenizer)
    aligned = align(Terms.of(encoder.tokenizer, encoder.vocabulary), Terms.of(tokenizer, terms))
    if strategy == "random_all":
        combination = copy_overlap(np.full_like(aligned, -1))
        return aligned, Initialization(combination, torch.empty(0, dtype=torch.int64), drawn=True, seed=seed)
    overlap = torch.from_numpy(aligned[aligned >= 0])
    if not len(overlap):
        raise ConfigError("target", "it has no token in common with the model", "take another target, or random_all")
    match strategy:
        case "semantic":
            assert target is not None
            combination = semantic(aligned, target.embeddings)
        case "subtoken":
            combination = copy_overlap(aligned, subtoken(term_pieces(terms, encoder.tokenizer)))
        case _:  # mean and random_new: the other rows have no entries
            combination = copy_overlap(aligned)
    return aligned, Initialization(combination, overlap, drawn=strategy == "random_new", seed=seed)
