"""Dropout on a CPU whose mask is drawn again in the backward pass.

torch's dropout on a CPU draws one random number per element and keeps a float mask of the size of its input. Here 64
random bits decide on four elements, and only the seed is kept.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lsr_prod_contrib.cpu_training.attention import kept_pairs

_STEPS = 65_536  # a rate is rounded to 1 / 65,536


class SeededDropout(nn.Dropout):
    """``torch.nn.Dropout`` that keeps a seed instead of a mask; its random numbers follow from torch's generator."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name of the base class
        """Return ``input`` with dropped elements, scaled; unchanged in evaluation mode or at a rate of 0."""
        if not self.training or self.p == 0 or input.device.type != "cpu":
            return super().forward(input)
        seed = int(torch.randint(2**62, ()))
        function: Any = _Dropout
        dropped: Tensor = function.apply(input, self.p, seed)
        return dropped


def use_cpu_dropout(model: nn.Module) -> None:
    """Replace every dropout of a model by ``SeededDropout``, in place."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, SeededDropout(child.p).train(child.training))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, rate: float, seed: int) -> Tensor:
        ctx.rate, ctx.seed = rate, seed
        return _drop(values, rate, seed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _drop(gradient, ctx.rate, ctx.seed), None, None


def _drop(values: Tensor, rate: float, seed: int) -> Tensor:
    kept = kept_pairs(values.numel(), rate, torch.Generator().manual_seed(seed)).view(values.shape)
    share = 1 - round(rate * _STEPS) / _STEPS
    return torch.mul(values, kept).mul_(1 / share if share else 0.0)
