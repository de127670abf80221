"""Result of one training step of a worker."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.training.objective import LossTerms
from lsr_prod.training.observers.activity import measure_activity
from lsr_prod.training.observers.throughput import ThroughputMeter


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """Vectors of one part of a step, without graph."""

    queries: Tensor  # [n, V]
    documents: Tensor  # [n * c, V]
    terms: LossTerms  # the loss


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one step."""

    scalars: Tensor  # the values of ``losses`` and ``grad_norm`` on the device of the step, which reads none of them
    names: tuple[str, ...]  # names of the losses, in the order of ``scalars``
    learning_rate: float  # learning rate of this step
    encoded: list[EncodedPart]  # vectors of this worker, by part
    tokens: int  # tokens of this worker's texts, padding excluded

    @classmethod
    def of(cls, encoded: list[EncodedPart], norm: Tensor, learning_rate: float, tokens: int) -> "StepResult":
        """Return the result of a step whose gradients had a norm of ``norm`` before clipping."""
        names = tuple(encoded[0].terms.parts)
        losses = torch.stack([torch.stack([one.terms.parts[name] for name in names]) for one in encoded])
        scalars = torch.cat([losses.double().mean(dim=0), norm.to(losses.device)[None].double()])
        return cls(scalars, names, learning_rate, encoded, tokens)

    @property
    def losses(self) -> dict[str, float]:
        """Terms of the loss of the global batch by name, averaged over the parts of the step; waits for the step."""
        return dict(zip(self.names, self.scalars.tolist(), strict=False))

    @property
    def grad_norm(self) -> float:
        """Norm of all gradients together, before clipping; waits for the step."""
        return float(self.scalars[-1])

    def vectors(self) -> tuple[Tensor, Tensor]:
        """Return this worker's queries [n, V] and documents [n * c, V] of all parts."""
        if len(self.encoded) == 1:  # no copy: they are as wide as the vocabulary
            return self.encoded[0].queries, self.encoded[0].documents
        return torch.cat([one.queries for one in self.encoded]), torch.cat([one.documents for one in self.encoded])

    def figures(self) -> dict[str, float]:
        """Return the sparsity of the global batch's vectors; a collective operation of all workers."""
        return measure_activity(*self.vectors())

    def count(self, meter: ThroughputMeter) -> None:
        """Add the work of this step to the meter."""
        queries, documents = self.vectors()
        active = torch.count_nonzero(queries) + torch.count_nonzero(documents)
        meter.count(documents=len(documents), tokens=self.tokens, active=active)
