"""How fast a training is: texts and tokens a second, share of the machine's arithmetic, peak memory."""

import math
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from lsr_prod.training.parallel.totals import largest_of_workers, sum_of_workers

__all__ = ["ModelWork", "ThroughputMeter", "known_peak", "measured_peak"]

# NVIDIA's data sheets: dense operations a second with bf16 tensor cores, and in fp32 without tensor cores, which is
# what torch computes fp32 with unless TF32 is allowed. The first name that the device's begins with counts.
_PEAKS = {
    "NVIDIA H200": (989e12, 67e12),
    "NVIDIA H100 PCIe": (756e12, 51e12),
    "NVIDIA H100 80GB HBM3": (989e12, 67e12),
    "NVIDIA A100": (312e12, 19.5e12),
    "NVIDIA L40S": (362e12, 91.6e12),
    "NVIDIA L4": (121e12, 30.3e12),
    "NVIDIA A10": (125e12, 31.2e12),
}


@dataclass(frozen=True, slots=True)
class ModelWork:
    """What one token costs: two operations a weight and pass of every linear layer; attention scores are not counted.

    Attributes:
        body: operations a token of all linear layers but the vocabulary head, forward and backward. Going back costs
            as much again for the inputs and, where the weights are trained, for the weights.
        head: operations a token of the vocabulary head, forward.
        head_active: operations of its way back for each active (text, term): the maximum over tokens has one source.
    """

    body: int
    head: int
    head_active: int

    @classmethod
    def of(cls, model: nn.Module, vocabulary_size: int) -> "ModelWork":
        """Count the linear layers of a model; the head are those with V outputs.

        Args:
            model: before or after it is wrapped for several workers.
            vocabulary_size: V, the rows of the output matrix.
        """
        body = head = head_active = 0
        for module in model.modules():
            if not isinstance(module, nn.Linear):
                continue
            weights = module.in_features * module.out_features
            passes = 2 if module.weight.requires_grad else 1
            if module.out_features == vocabulary_size:
                head += 2 * weights
                head_active += 2 * passes * module.in_features
            else:
                body += 2 * weights * (1 + passes)
        return cls(body, head, head_active)

    def operations(self, tokens: int, active: int) -> int:
        """Operations of a step.

        Args:
            tokens: padding excluded.
            active: (text, term) pairs with a weight above 0.
        """
        return (self.body + self.head) * tokens + self.head_active * active

    def language_operations(self, tokens: int, predicted: int) -> int:
        """Operations of a step of language modelling, whose head is gone through there and back.

        Args:
            tokens: padding excluded.
            predicted: tokens that logits are made of.
        """
        return self.body * tokens + 3 * self.head * predicted


class ThroughputMeter:
    """Measures the steps between two reports; the wall clock runs, except while it is paused."""

    def __init__(self, work: ModelWork, device: torch.device, *, peak: float | None) -> None:
        """Start the clock.

        Args:
            work: of the model.
            device: of this worker.
            peak: operations a second that it can do at most, or None; see ``known_peak`` and ``measured_peak``.
        """
        self._work, self._device, self._peak = work, device, peak
        self._begin()

    def _begin(self) -> None:
        self._steps = self._documents = self._tokens = self._operations = 0
        self._start = self._now()

    def count(self, *, documents: int, tokens: int, active: int = 0, predicted: int | None = None) -> None:
        """Count a step of this worker.

        Args:
            documents: that it encoded; each once, though a step may encode it twice to save memory.
            tokens: of queries and documents, padding excluded.
            active: (text, term) pairs of queries and documents with a weight above 0.
            predicted: of a language model, tokens that logits over the whole vocabulary are made of; None: it is none.
        """
        self._steps += 1
        self._documents += documents
        self._tokens += tokens
        if predicted is None:
            self._operations += self._work.operations(tokens, active)
        else:
            self._operations += self._work.language_operations(tokens, predicted)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what is no training: a validation, a checkpoint."""
        start = self._now()
        yield
        self._start += self._now() - start

    def report(self) -> dict[str, float | None]:
        """Figures of all workers since the report before; every worker has to call it.

        Returns:
            ``docs_per_s`` and ``tokens_per_s`` of all workers; ``step_s``, seconds of a step; ``mfu``, the model's
            operations as a share of what the devices could do, None where a peak is unknown; ``peak_memory_bytes`` of
            the worker that needed most, since its start: of a GPU what torch allocated, else the process's resident
            memory. All None where no step was counted, but for the memory.
        """
        seconds = self._now() - self._start
        peak = math.nan if self._peak is None else self._peak  # one that is unknown makes the sum unknown
        sums = torch.tensor([self._documents, self._tokens, self._operations, peak], dtype=torch.float64)
        documents, tokens, operations, peaks = sum_of_workers(sums).tolist()
        most = torch.tensor([seconds, _peak_memory(self._device)], dtype=torch.float64)
        seconds, memory = largest_of_workers(most).tolist()
        steps = self._steps
        self._begin()
        if not steps or seconds <= 0:
            return dict.fromkeys(("docs_per_s", "tokens_per_s", "step_s", "mfu")) | {"peak_memory_bytes": memory}
        return {
            "docs_per_s": documents / seconds,
            "tokens_per_s": tokens / seconds,
            "step_s": seconds / steps,
            "mfu": operations / seconds / peaks if not math.isnan(peaks) else None,
            "peak_memory_bytes": memory,
        }

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # kernels still run when their calls have returned
        return time.perf_counter()


def known_peak(name: str, precision: str) -> float | None:
    """Operations a second that a GPU does at most, or None for one that is not known.

    Args:
        name: as ``torch.cuda.get_device_name`` gives it.
        precision: ``bf16`` or ``fp32``.
    """
    for prefix, (bf16, fp32) in _PEAKS.items():
        if name == prefix or name.startswith((f"{prefix} ", f"{prefix}-")):
            return bf16 if precision == "bf16" else fp32
    return None


def measured_peak(precision: str, *, size: int = 1024, repeats: int = 5) -> float:
    """Operations a second of a matrix product on this CPU, with the threads that torch has here.

    Args:
        precision: ``bf16`` or ``fp32``.
        size: rows and columns of the matrices.
        repeats: of which the fastest counts.
    """
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = torch.ones(size, size, dtype=dtype), torch.ones(size, size, dtype=dtype)
    torch.mm(left, right)
    fastest = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(left, right)
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * size**3 / fastest


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
