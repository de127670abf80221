"""Uncased output terms (papers/casing, post-processing).

Cased terms are dropped. A word that only has cased terms is folded into its lowercase form by the maximum.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lsr_prod.errors import ConfigError
from lsr_prod.terms.casing import cased_terms, uncased_groups


class UncasedOutput(nn.Module):
    """Folds the weights of the V terms of a head into weights of G uncased terms.

    Attributes:
        terms: the G terms.
        first: int64 [G], the first row of the head of each term.
        more_rows: int64 [E], the further rows of terms with several rows.
        more_terms: int64 [E], the terms of ``more_rows``, 0..G-1.
    """

    first: Tensor
    more_rows: Tensor
    more_terms: Tensor

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Group the terms of a head."""
        super().__init__()
        check_uncased(letters_of(vocabulary))
        found = uncased_groups(vocabulary)
        self.terms = found.terms
        self._assign(torch.tensor(found.rows), torch.tensor(found.groups))

    def restricted(self, columns: Tensor) -> tuple[Tensor, "UncasedOutput"]:
        """Restrict the output to some terms: return the rows of the head to keep, and the folding of these rows.

        Returns:
            int64 [K], sorted rows of the head; and a module that folds weights [B, K] into [B, len(columns)].
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
        """Fold weights [B, V], at least 0, into [B, G]."""
        folded = weights.index_select(1, self.first)
        if not len(self.more_rows):
            return folded
        places = self.more_terms[None, :].expand(weights.shape[0], -1)
        return folded.scatter_reduce(1, places, weights.index_select(1, self.more_rows), "amax")


def letters_of(terms: Sequence[str]) -> frozenset[str]:
    """Return ``lower`` if a term has a lowercase letter, and ``capital`` if a term is cased."""
    lower = {"lower"} if any(term != term.upper() for term in terms) else set()
    return frozenset(lower | ({"capital"} if any(cased_terms(terms)) else set()))


def check_uncased(letters: frozenset[str]) -> None:
    """Refuse uncased output for a vocabulary without uncased forms."""
    if "lower" not in letters:
        raise ConfigError("output_casing", "no output term has a lowercase letter", "leave the field out")
    if "capital" not in letters:
        raise ConfigError("output_casing", "no output term is cased", "leave the field out")
