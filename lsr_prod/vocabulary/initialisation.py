"""Rows of a new vocabulary made of those of the old one (vocabulary-transfer, 4.2.2).

Most new rows are sums of old ones, so they are kept as a sparse matrix that is applied to input embeddings, output
matrix and bias alike. What no old row makes is drawn, or is the mean of the rows that both vocabularies have.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag, normalize

from lsr_prod.vocabulary.sparsemax import sparsemax_support

__all__ = ["Combination", "Initialisation", "copied", "semantic", "subtoken"]

_BLOCK = 512  # new rows whose similarities are held at once


@dataclass(frozen=True, slots=True)
class Combination:
    """A sparse matrix [V', V]: how each new row is added up from old ones; a row without entries is not made.

    Attributes:
        starts: int64 [V' + 1], where a row's entries begin.
        rows: int64 [entries], old rows.
        weights: float32 [entries].
    """

    starts: Tensor
    rows: Tensor
    weights: Tensor

    @classmethod
    def of_lists(cls, rows: Sequence[Sequence[int]], weights: Sequence[Sequence[float]]) -> "Combination":
        """From the entries of each row."""
        return cls(
            _starts(torch.tensor([len(entries) for entries in rows], dtype=torch.int64)),
            torch.tensor([row for entries in rows for row in entries], dtype=torch.int64),
            torch.tensor([weight for entries in weights for weight in entries], dtype=torch.float32),
        )

    @property
    def empty(self) -> Tensor:
        """Which rows are not made, bool [V']."""
        return self.starts.diff() == 0

    def apply(self, matrix: Tensor) -> Tensor:
        """New rows [V', d] of old ones [V, d]; a copied row stays equal bit by bit, one without entries is 0."""
        matrix = matrix.detach()
        weights = self.weights.to(matrix.dtype)
        return embedding_bag(self.rows, matrix, self.starts[:-1], mode="sum", per_sample_weights=weights)

    def entries(self, row: int) -> list[tuple[int, float]]:
        """Old rows of a new one and their weights, heaviest first."""
        part = slice(int(self.starts[row]), int(self.starts[row + 1]))
        found = zip(self.rows[part].tolist(), self.weights[part].tolist(), strict=True)
        return sorted(found, key=lambda entry: -entry[1])


@dataclass(frozen=True, slots=True)
class Initialisation:
    """Everything that decides the new rows.

    Attributes:
        combination: [V', V].
        centre: old rows whose mean a row without entries becomes.
        drawn: rows without entries are drawn from a normal distribution of mean 0 and the old rows' standard
            deviation instead (ours).
        seed: of the draw.
    """

    combination: Combination
    centre: Tensor
    drawn: bool = False
    seed: int = 0

    def rows(self, matrix: Tensor) -> Tensor:
        """New rows [V', d] of old ones [V, d]."""
        matrix, empty = matrix.detach(), self.combination.empty
        made = self.combination.apply(matrix)
        if self.drawn:
            generator = torch.Generator().manual_seed(self.seed)
            drawn = torch.randn(int(empty.sum()), matrix.shape[1], generator=generator)
            made[empty] = drawn.to(matrix.dtype) * matrix.std()
        else:
            made[empty] = matrix[self.centre].mean(dim=0)
        return made

    def values(self, vector: Tensor) -> Tensor:
        """New values [V'] of old ones [V], such as those of a bias."""
        return self.rows(vector[:, None])[:, 0]


def copied(aligned: NDArray[np.int64], new: Combination | None = None) -> Combination:
    """Rows of the overlap as they are, the others from a combination, or not made.

    Args:
        aligned: [V'], the old row of each new one, or -1, as ``align`` returns it.
        new: [V', V]; its entries of aligned rows do not count.
    """
    kept = torch.from_numpy(aligned)
    there = kept >= 0
    sizes = torch.zeros_like(kept) if new is None else new.starts.diff()
    starts = _starts(torch.where(there, 1, sizes))
    rows, weights = torch.empty(int(starts[-1]), dtype=torch.int64), torch.ones(int(starts[-1]))
    rows[starts[:-1][there]] = kept[there]
    if new is not None:
        into, taken = (~there).repeat_interleave(starts.diff()), (~there).repeat_interleave(sizes)
        rows[into], weights[into] = new.rows[taken], new.weights[taken]
    return Combination(starts, rows, weights)


def semantic(aligned: NDArray[np.int64], target_embeddings: Tensor) -> Combination:
    """New rows near the tokens that the target's model takes for similar (eq. 7 to 9).

    Cosines of each new token with every token of the overlap, in the target model's embeddings, become convex weights
    by sparsemax; the new row is that sum of the overlap's old rows. 512 new rows are looked at at once, so memory is
    that of 512 times the overlap.

    Args:
        aligned: [V'], as ``align`` returns it; at least one is 0 or more.
        target_embeddings: [V', d'] of a model with the target vocabulary.

    Returns:
        [V', V], the overlap copied.
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
    return copied(aligned, Combination(_starts(torch.from_numpy(counts)), rows, torch.cat(weights)))


def subtoken(pieces: Sequence[Sequence[int]]) -> Combination:
    """Each new row is the mean of the old rows of its sub-tokens (4.2.2; esplade-pretraining, B.1).

    Args:
        pieces: old rows of each new term; a term without any is not made.

    Returns:
        [V', V].
    """
    return Combination.of_lists(pieces, [[1 / len(entries) for _ in entries] for entries in pieces])


def _starts(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
