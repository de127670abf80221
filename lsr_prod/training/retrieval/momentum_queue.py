"""Momentum queue (MoCo): documents of earlier steps as negatives, encoded by a moving average of the model.

He et al., arXiv 1911.05722; for sparse vectors papers/esplade-pretraining, appendix J.4.2.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.config.objective import QueueSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batches import TrainBatch
from lsr_prod.training.kept_terms import KeptTerms, heaviest_terms
from lsr_prod.training.process_group import Group, all_rows


@dataclass(frozen=True, slots=True)
class QueuedDocuments:
    """Documents of the queue."""

    vectors: KeptTerms  # k documents
    keys: Tensor  # int64 [k], their keys


class MomentumQueue:
    """A queue of negatives and the moving average of the model that encodes them; equal on every worker."""

    def __init__(self, encoder: SparseEncoder, settings: QueueSettings, group: Group) -> None:
        self._momentum = settings.momentum
        self._average = copy.deepcopy(encoder).to(group.device).eval().requires_grad_(False)
        self._queue = NegativeQueue(settings.size, settings.terms, encoder.card.vocabulary_size)
        self._device = group.device

    def documents(self) -> QueuedDocuments | None:
        """Return the documents of the queue; None while it is empty."""
        return QueuedDocuments(self._queue.kept(), self._queue.keys()) if len(self._queue) else None

    @torch.no_grad()
    def push(self, part: TrainBatch) -> None:
        """Encode the documents of a part with the moving average; enqueue those of all workers."""
        ids, mask = part.documents.input_ids.to(self._device), part.documents.attention_mask.to(self._device)
        # Without keys false negatives are not masked, and the keys of the queue are not read.
        keys = torch.zeros(len(ids), dtype=torch.int64)
        if part.keys is not None:
            keys = part.keys.documents if part.present is None else part.keys.documents[part.present.flatten()]
        self._queue.push(all_rows(self._average(ids, mask)), all_rows(keys.to(self._device)))

    @torch.no_grad()
    def follow(self, encoder: SparseEncoder) -> None:
        """Update the moving average after an optimizer step."""
        average: list[Tensor] = [p for p in self._average.parameters() if p.is_floating_point()]
        current: list[Tensor] = [p.detach() for p in encoder.parameters() if p.is_floating_point()]
        torch._foreach_lerp_(average, current, 1 - self._momentum)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors of a checkpoint."""
        for name, value in self._queue.state().items():
            yield f"queue.{name}", value
        for name, parameter in self._average.model.named_parameters():
            yield f"slow.{name}", parameter.detach().cpu()

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the tensors of a checkpoint."""
        names = [name for name in tensors if name.startswith("queue.")]
        self._queue.load_state({name.removeprefix("queue."): tensors[name] for name in names})
        for name, parameter in self._average.model.named_parameters():
            parameter.copy_(tensors[f"slow.{name}"])


class NegativeQueue:
    """Ring buffer of the newest documents, each with its heaviest terms and its key."""

    def __init__(self, size: int, terms: int, vocabulary_size: int) -> None:
        terms = min(terms, vocabulary_size)
        self._vocabulary_size = vocabulary_size
        self._terms = torch.zeros(size, terms, dtype=torch.int32)
        self._weights = torch.zeros(size, terms)
        self._keys = torch.zeros(size, dtype=torch.int64)
        self._filled = self._next = 0

    def __len__(self) -> int:
        """Return the number of documents in the queue."""
        return self._filled

    @torch.no_grad()
    def push(self, documents: Tensor, keys: Tensor) -> None:
        """Add documents; beyond ``size``, each replaces the oldest."""
        size, kept = self._terms.shape
        terms, weights = heaviest_terms(documents[-size:].float(), kept)
        device = documents.device
        self._terms, self._weights = self._terms.to(device), self._weights.to(device)
        self._keys = self._keys.to(device)
        places = (self._next + torch.arange(len(terms), device=device)) % size
        self._terms[places], self._weights[places] = terms.to(torch.int32), weights
        self._keys[places] = keys[-size:]
        self._next = (self._next + len(terms)) % size
        self._filled = min(size, self._filled + len(terms))

    def kept(self) -> KeptTerms:
        """Return the k documents as kept terms, without gradient; k is 0 at first."""
        return KeptTerms(self._terms[: self._filled].long(), self._weights[: self._filled], self._vocabulary_size)

    def keys(self) -> Tensor:
        """Return the keys of the documents, int64 [k]."""
        return self._keys[: self._filled]

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint, copied to the CPU."""
        tensors = {"terms": self._terms, "weights": self._weights, "keys": self._keys}
        position = torch.tensor([self._filled, self._next])
        return {name: value.cpu().clone() for name, value in tensors.items()} | {"position": position}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore ``state()`` of a queue of the same size, bit for bit."""
        self._terms, self._weights = state["terms"].clone(), state["weights"].clone()
        self._keys = state["keys"].clone()
        self._filled, self._next = (int(number) for number in state["position"])
