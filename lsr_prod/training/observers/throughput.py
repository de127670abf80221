"""Throughput of a training: documents and tokens per second, model FLOPs utilization (MFU), peak memory."""

import math
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lsr_prod.training.process_group import largest_of_workers, sum_of_workers

# NVIDIA's data sheets: dense operations per second in bf16 with tensor cores, and in fp32 without them: torch uses none
# for fp32 unless TF32 is allowed. The first prefix of the device's name applies.
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
    """Arithmetic work per token: two operations per weight and pass of every linear layer, without attention scores."""

    # operations per token of all linear layers except the vocabulary head, forward and backward. The backward pass
    # costs as much again for the inputs and, if the weights are trained, for the weights
    body: int
    head: int  # operations per token of the forward pass of the vocabulary head
    head_active: int  # operations of its backward pass per active (text, term): a maximum over tokens has one source

    @classmethod
    def of(cls, model: nn.Module, vocabulary_size: int) -> "ModelWork":
        """Count the linear layers of a model; those with V outputs are the head."""
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
        """Return the operations of a step."""
        return (self.body + self.head) * tokens + self.head_active * active

    def language_operations(self, tokens: int, predicted: int) -> int:
        """Return the operations of a step of language modeling, with forward and backward pass of the head."""
        return self.body * tokens + 3 * self.head * predicted


class ThroughputMeter:
    """Meter of the steps between two reports, by wall clock, excluding pauses."""

    def __init__(self, work: ModelWork, device: torch.device, *, peak: float | None) -> None:
        self._work, self._device, self._peak = work, device, peak
        self._begin()

    def _begin(self) -> None:
        self._steps = self._documents = self._tokens = self._operations = 0
        self._active: Tensor | int = 0  # a tensor is read in a report only: the host would wait for the device
        self._start = self._now()

    def count(self, *, documents: int, tokens: int, active: Tensor | int = 0, predicted: int | None = None) -> None:
        """Count a step of this worker."""
        self._steps += 1
        self._documents += documents
        self._tokens += tokens
        if predicted is None:
            self._operations += self._work.operations(tokens, 0)
            self._active = self._active + active
        else:
            self._operations += self._work.language_operations(tokens, predicted)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the block, such as a validation or a checkpoint, from the measured time."""
        start = self._now()
        yield
        self._start += self._now() - start

    def report(self) -> dict[str, float | None]:
        """Return figures of all workers since the last report; a collective operation of all workers.

        ``step_s`` is seconds per step; ``mfu`` the model's operations as a share of the devices' peak, None if a peak
        is unknown; ``peak_memory_bytes`` the maximum over workers since their start: memory allocated by torch on a
        GPU, otherwise resident memory of the process. Without a counted step, all except the memory are None.
        """
        seconds = self._now() - self._start
        peak = math.nan if self._peak is None else self._peak  # an unknown peak makes the sum unknown
        done = self._operations + self._work.operations(0, int(self._active))
        sums = torch.tensor([self._documents, self._tokens, done, peak], dtype=torch.float64)
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
            torch.cuda.synchronize(self._device)  # calls return before their kernels end
        return time.perf_counter()


def known_peak(name: str, *, bf16: bool) -> float | None:
    """Return the maximum operations per second of a GPU; None: unknown."""
    for prefix, (in_bf16, in_fp32) in _PEAKS.items():
        if name == prefix or name.startswith((f"{prefix} ", f"{prefix}-")):
            return in_bf16 if bf16 else in_fp32
    return None


def measured_peak(*, bf16: bool, size: int = 1024, repeats: int = 5) -> float:
    """Measure the operations per second of a matrix product on this CPU, with torch's current threads."""
    dtype = torch.bfloat16 if bf16 else torch.float32
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
