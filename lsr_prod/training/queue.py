"""Documents of earlier steps as further negatives (MoCo, arXiv 1911.05722)."""

import torch
from torch import Tensor

from lsr_prod.training import masking
from lsr_prod.training.kept_terms import KeptTerms

__all__ = ["NegativeQueue"]


class NegativeQueue:
    """A ring of the newest documents, of each its heaviest terms.

    Args:
        size: documents kept.
        terms: heaviest terms kept of a document.
        vocabulary_size: V.
    """

    def __init__(self, size: int, terms: int, vocabulary_size: int) -> None:
        terms = min(terms, vocabulary_size)
        self._vocabulary_size = vocabulary_size
        self._terms = torch.zeros(size, terms, dtype=torch.int32)
        self._weights = torch.zeros(size, terms)
        self._filled = self._next = 0

    def __len__(self) -> int:
        """The number of documents held."""
        return self._filled

    @torch.no_grad()
    def push(self, documents: Tensor) -> None:
        """Add documents; each one above ``size`` replaces the oldest.

        Args:
            documents: of all workers and the same on all, [m, V].
        """
        size, kept = self._terms.shape
        terms, weights = masking.heaviest_terms(documents[-size:].float(), kept)
        self._terms, self._weights = self._terms.to(documents.device), self._weights.to(documents.device)
        places = (self._next + torch.arange(len(terms), device=documents.device)) % size
        self._terms[places], self._weights[places] = terms.to(torch.int32), weights
        self._next = (self._next + len(terms)) % size
        self._filled = min(size, self._filled + len(terms))

    def rows(self) -> Tensor:
        """The documents held, float32 [k, V] without a gradient; k is 0 at first."""
        return self.kept().dense()

    def kept(self) -> KeptTerms:
        """The documents held, without a tensor as wide as the vocabulary; ``TrainingLoss`` takes them so too."""
        return KeptTerms(self._terms[: self._filled].long(), self._weights[: self._filled], self._vocabulary_size)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps; copies on the CPU."""
        position = torch.tensor([self._filled, self._next])
        return {"terms": self._terms.cpu().clone(), "weights": self._weights.cpu().clone(), "position": position}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()`` of a queue of the same size, bit for bit."""
        self._terms, self._weights = state["terms"].clone(), state["weights"].clone()
        self._filled, self._next = (int(number) for number in state["position"])
