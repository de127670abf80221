"""MoCo: documents of earlier steps as negatives, encoded by a copy of the model that follows it slowly.

He et al., arXiv 1911.05722; for sparse vectors papers/esplade-pretraining, appendix J.4.2.
"""

import copy
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from lsr_prod.config.objective import QueueSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batches import TrainBatch
from lsr_prod.training.collective import all_rows
from lsr_prod.training.kept_terms import KeptTerms
from lsr_prod.training.process_group import Group
from lsr_prod.training.queue import NegativeQueue

__all__ = ["SlowNegatives"]


class SlowNegatives:
    """The queue of negatives and the slow copy that fills it; equal on every worker."""

    def __init__(self, encoder: SparseEncoder, settings: QueueSettings, group: Group) -> None:
        """Start from a copy of ``encoder`` and an empty queue."""
        self._momentum = settings.momentum
        self._slow = copy.deepcopy(encoder).to(group.device).eval().requires_grad_(False)
        self._queue = NegativeQueue(settings.size, settings.terms, encoder.card.vocabulary_size)
        self._device = group.device

    def documents(self) -> KeptTerms | None:
        """The documents of the queue, or None while it is empty."""
        return self._queue.kept() if len(self._queue) else None

    @torch.no_grad()
    def push(self, part: TrainBatch) -> None:
        """Encode the documents of a part by the slow copy and put those of all workers into the queue."""
        ids, mask = part.documents.input_ids.to(self._device), part.documents.attention_mask.to(self._device)
        self._queue.push(all_rows(self._slow(ids, mask)))

    @torch.no_grad()
    def follow(self, encoder: SparseEncoder) -> None:
        """Move the slow copy a little towards the model, after its step."""
        slow: list[Tensor] = [p for p in self._slow.parameters() if p.is_floating_point()]
        fast: list[Tensor] = [p.detach() for p in encoder.parameters() if p.is_floating_point()]
        torch._foreach_lerp_(slow, fast, 1 - self._momentum)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """What a checkpoint keeps."""
        for name, value in self._queue.state().items():
            yield f"queue.{name}", value
        for name, parameter in self._slow.model.named_parameters():
            yield f"slow.{name}", parameter.detach().cpu()

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what ``tensors`` gave."""
        names = [name for name in tensors if name.startswith("queue.")]
        self._queue.load_state({name.removeprefix("queue."): tensors[name] for name in names})
        for name, parameter in self._slow.model.named_parameters():
            parameter.copy_(tensors[f"slow.{name}"])
