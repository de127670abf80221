"""Learned query weights in training: one scalar per output term, trained together with the documents.

Li-LSR (Nardini et al., arXiv 2505.01452) learns one static score per token, ``log(1 + relu(w . E(t) + b))`` with the
token's word embedding E(t), and looks the scores up at query time. Here the table itself is trained (ours): the weight
of term t is ``softplus(x_t) = log(1 + exp(x_t))`` with one parameter x_t per output term. The softplus is above 0 and
has a gradient everywhere, so no term is lost, any initial weight above 0 can be expressed, and terms without a word
embedding (words, uncased terms) have weights too.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from lsr_prod.config.optimization import OptimizerSettings
from lsr_prod.training.parallel.collective import all_rows, world_size

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class QueryTable:
    """Weights of query terms and their optimizer; equal on every worker.

    AdamW runs without weight decay. The gradient of the table is clipped at ``max_grad_norm`` like that of the model,
    but by its own norm.
    """

    def __init__(self, start: Tensor, settings: OptimizerSettings, *, factor: float) -> None:
        # log(exp(s) - 1) without overflow
        self._parameter = nn.Parameter(start + torch.log(-torch.expm1(-start)))
        self._factor, self._max_norm = factor, settings.max_grad_norm
        self._optimizer = torch.optim.AdamW(
            [self._parameter], betas=settings.betas, eps=settings.epsilon, weight_decay=0.0, fused=True
        )

    def weights(self) -> Tensor:
        """Return the weights, float32 [V], above 0, with a graph."""
        return softplus(self._parameter).clamp_min(torch.finfo(torch.float32).tiny)

    @torch.no_grad()
    def apply(self, learning_rate: float) -> Tensor:
        """Update the weights; a collective operation of all workers.

        Returns:
            Norm of the gradient before clipping, a scalar that is not read on the host.
        """
        own = self._parameter.grad
        self._parameter.grad = _mean_over_workers(torch.zeros_like(self._parameter) if own is None else own)
        limit = math.inf if self._max_norm is None else self._max_norm
        norm = nn.utils.clip_grad_norm_([self._parameter], limit)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate * self._factor
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint, copied to the CPU."""
        moments = self._optimizer.state.get(self._parameter, {})
        tensors = {"parameter": self._parameter, **{name: moments[name] for name in _MOMENTS if name in moments}}
        return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore ``state()``, bit for bit."""
        self._parameter.copy_(state["parameter"])
        if "step" in state:
            moments = {name: state[name].clone().to(self._parameter.device) for name in _MOMENTS}
            self._optimizer.state[self._parameter] = moments


def _mean_over_workers(gradient: Tensor) -> Tensor:
    """Return the mean over workers, added up in rank order, so that it is equal to the bit after a restart."""
    world = world_size()
    if world == 1:
        return gradient
    parts = all_rows(gradient[None], [1] * world)
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total / world
