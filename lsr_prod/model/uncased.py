"""Uncased output terms (papers/casing, post-processing).

Cased terms are dropped; words that have only a cased one are folded into their lowercase form by the maximum.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lsr_prod.errors import ConfigError
from lsr_prod.terms.casing import cased_terms, uncased_groups

__all__ = ["UncasedOutput", "check_uncased", "letters_of"]


class UncasedOutput(nn.Module):
    """Weights of the V terms of a head -> weights of G uncased terms.

    Attributes:
        terms: the G terms.
        first: int64 [G], one row of the head for each term.
        more_rows: int64 [E], rows of the terms that have several.
        more_terms: int64 [E], the terms that they belong to, 0..G-1.
    """

    first: Tensor
    more_rows: Tensor
    more_terms: Tensor

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Group the terms of a head.

        Raises:
            ConfigError: none of them has a lowercase form, or none is cased.
        """
        super().__init__()
        check_uncased(letters_of(vocabulary))
        found = uncased_groups(vocabulary)
        self.terms = found.terms
        self._assign(torch.tensor(found.rows), torch.tensor(found.groups))

    def restricted(self, columns: Tensor) -> tuple[Tensor, "UncasedOutput"]:
        """For a head of which only the rows that matter are left: those rows, and what folds them.

        Args:
            columns: int64, rising: the terms that are kept; the result numbers them from 0.

        Returns:
            int64 [K], rising: rows of the head; and what takes weights [B, K] to [B, len(columns)].
        """
        kept = torch.isin(self.more_terms, columns)
        rows = torch.cat((self.first[columns], self.more_rows[kept]))
        groups = torch.cat((torch.arange(len(columns)), torch.searchsorted(columns, self.more_terms[kept])))
        rows, order = rows.sort()
        fold = copy.deepcopy(self)
        fold.terms = [self.terms[i] for i in columns.tolist()]
        fold._assign(torch.arange(len(rows)), groups[order])
        return rows, fold

    def _assign(self, rows: Tensor, groups: Tensor) -> None:
        order = groups.argsort(stable=True)
        rows, groups = rows[order], groups[order]
        leads = torch.ones_like(groups, dtype=torch.bool)
        leads[1:] = groups[1:] != groups[:-1]
        for name, value in (("first", rows[leads]), ("more_rows", rows[~leads]), ("more_terms", groups[~leads])):
            self.register_buffer(name, value, persistent=False)

    def forward(self, weights: Tensor) -> Tensor:
        """Fold: [B, V], at least 0 -> [B, G]."""
        folded = weights.index_select(1, self.first)
        if not len(self.more_rows):
            return folded
        places = self.more_terms[None, :].expand(weights.shape[0], -1)
        return folded.scatter_reduce(1, places, weights.index_select(1, self.more_rows), "amax")


def letters_of(terms: Sequence[str]) -> frozenset[str]:
    """Which letters there are among terms: ``lower`` if some has a lowercase one, ``capital`` if some is cased."""
    lower = {"lower"} if any(term != term.upper() for term in terms) else set()
    return frozenset(lower | ({"capital"} if any(cased_terms(terms)) else set()))


def check_uncased(letters: frozenset[str]) -> None:
    """Refuse uncased output of a vocabulary that has no uncased form.

    Args:
        letters: of its terms, see ``letters_of``.

    Raises:
        ConfigError: none of them has a lowercase letter, or none is cased.
    """
    if "lower" not in letters:
        raise ConfigError("output_casing", "no output term has a lowercase letter", "leave the field out")
    if "capital" not in letters:
        raise ConfigError("output_casing", "no output term is cased", "leave the field out")
