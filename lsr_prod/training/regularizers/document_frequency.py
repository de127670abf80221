"""Document frequencies of terms, for DF-FLOPS (arXiv 2505.15070)."""

import math

import torch
from torch import Tensor

from lsr_prod.training.parallel import collective
from lsr_prod.training.vectors.kept_terms import Vectors


class DocumentFrequency:
    """Document frequencies in windows of ``every`` steps, over all workers.

    The weights of a window follow from the counts of the previous window; in the first window, from the counts so far.
    Counts are integers, so they do not depend on the number of workers, and are equal on all workers.
    """

    def __init__(self, vocabulary_size: int, *, alpha: float, beta: float, every: int) -> None:
        self._alpha, self._beta, self._every = alpha, beta, every
        self._counts = torch.zeros(vocabulary_size, dtype=torch.int64)
        self._shares = torch.zeros(vocabulary_size, dtype=torch.float64)
        self._documents = self._window = 0

    @torch.no_grad()
    def observe(self, documents: Vectors, step: int) -> None:
        """Count the documents of a step, or of one part of it; a collective operation of all workers."""
        window = step // self._every
        active = _documents_with(documents)
        self._counts = self._counts.to(active.device)
        if window != self._window:
            self._shares = self._counts.double() / max(1, self._documents)
            self._counts.zero_()
            self._window, self._documents = window, 0
        everyones = collective.global_sum(torch.cat([active, active.new_tensor([len(documents)])]))
        self._counts += everyones[:-1]
        self._documents += int(everyones[-1])
        if self._window == 0:
            self._shares = self._counts.double() / max(1, self._documents)

    def weights(self, device: torch.device) -> Tensor:
        """Return factors of the terms' mean weights, float32 [V] in [0, 1]; 0 before the first count."""
        self._shares = self._shares.to(device)
        return frequency_weights(self._shares, alpha=self._alpha, beta=self._beta).float()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint, copied to the CPU."""
        position = torch.tensor([self._documents, self._window])
        return {"counts": self._counts.cpu().clone(), "shares": self._shares.cpu().clone(), "position": position}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore ``state()``."""
        self._counts, self._shares = state["counts"].clone(), state["shares"].clone()
        self._documents, self._window = (int(number) for number in state["position"])


def _documents_with(documents: Vectors) -> Tensor:
    """Return the number of documents with each term, int64 [V]."""
    if isinstance(documents, Tensor):
        return torch.count_nonzero(documents, dim=0)
    active = documents.weights > 0
    counts = torch.zeros(documents.vocabulary_size, dtype=torch.int64, device=active.device)
    return counts.index_add(0, documents.terms.flatten(), active.flatten().long())


def frequency_weights(shares: Tensor, *, alpha: float, beta: float) -> Tensor:
    """Return ``1 / (1 + (x ** log_alpha(2) - 1) ** beta)``: 0 for x = 0, 1/2 for x = alpha, 1 for x = 1.

    Returns:
        [V], in the dtype of ``shares``.
    """
    exponent = math.log(2) / math.log(alpha)  # negative: x = 0 gives an infinite power, hence weight 0
    return 1 / (1 + (shares.pow(exponent) - 1).clamp_min(0).pow(beta))
