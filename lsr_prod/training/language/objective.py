"""Interface of objectives on plain text: from rows to a batch, and from a batch to a loss.

The loss of a step is a sum over its predictions, divided by their number over all workers and parts: its gradient does
not depend on how a batch is shared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from lsr_prod.model import SparseEncoder, backbone
from lsr_prod.training.data.training_set import Example

Rows = np.typing.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LanguageBatch:
    """Batch of one worker for one part of a step."""

    inputs: tuple[Tensor, ...]  # arguments of the objective's ``sums``, on the CPU
    predicted: int  # number of predictions: tokens, or texts
    texts: int  # number of texts
    tokens: int  # tokens of the texts, padding excluded


class LanguageObjective(Protocol):
    """Objective on plain text."""

    losses: tuple[str, ...]  # names of the terms of the loss
    figures: tuple[str, ...]  # names of further reported figures
    pools: bool  # vectors of texts are computed, not logits of single tokens

    def batch(self, examples: Sequence[Example], rows: Rows, step: int, /) -> LanguageBatch:
        """Return the batch of some rows; a pure function of rows and step."""

    def sums(self, encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum to minimize over all predictions, and the sums of losses and figures, without graph."""


class LanguageModule(nn.Module):
    """Module around encoder and objective, so that DDP and FSDP2 synchronize the whole forward pass."""

    def __init__(self, encoder: SparseEncoder, objective: LanguageObjective) -> None:
        super().__init__()
        self.encoder = encoder
        self._objective = objective

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``LanguageObjective.sums``."""
        return self._objective.sums(self.encoder, *inputs)


def token_sums(
    encoder: SparseEncoder,
    ids: Tensor,
    mask: Tensor,
    places: Tensor,
    labels: Tensor,
    *,
    attention: Literal["bidirectional", "causal"],
    relu_weight: float,
) -> tuple[Tensor, Tensor]:
    """Return losses of the tokens at some places of a batch; the head is applied to no others."""
    hidden = backbone.hidden_states(encoder.model, ids, mask, attention=attention)
    states = backbone.head_input(encoder.model, hidden.flatten(0, 1).index_select(0, places))  # [M, d]
    return token_losses(states, *backbone.output_layer(encoder.model), labels, relu_weight=relu_weight)


def ordinary(tokenizer: PreTrainedTokenizerFast) -> np.typing.NDArray[np.int64]:
    """Return the ids of all tokens that are not special."""
    return np.array(sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids)), np.int64)


def padding(encoder: SparseEncoder) -> int:
    """Return the id of the padding token."""
    return int(encoder.model.config.pad_token_id or 0)


# Cross entropy over a large vocabulary, of logits and of their activations, without a tensor of all logits [N, V].
#
# Loss and gradient are computed together, for some tokens at a time: with ``p = softmax(z)``, the gradient of a row is
# ``p - 1_y``. The second term, the cross entropy of ``log(1 + relu(z))`` (papers/csplade, 3.2), needs no tensor of its
# own: since ``exp(log(1 + relu(z))) = 1 + relu(z)``, its log-sum-exp is ``log(V + sum relu(z))``, and its gradient is
# ``1[z > 0] (1 / (V + sum relu(z)) - 1_y / (1 + z_y))``.

# Logits per tile: 64 MB on a CPU. Each tile reads the output matrix once forward and once backward.
_CPU_TILE = 1 << 24
_GPU_TILE = 1 << 27


def token_losses(
    states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, *, relu_weight: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return cross entropies summed over tokens. Under autocast, products have its dtype; all else is float32.

    The first value is the sum to minimize, with gradient. The second has none, [3]: the sums of the cross entropies of
    logits and of activations (0 if not computed), and the number of tokens whose label has the largest logit.
    """
    function: Any = _TokenLosses
    total, parts = function.apply(states, weight, bias, labels, relu_weight, torch.is_grad_enabled())
    return total, parts


class _TokenLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, relu_weight: float, graph: bool
    ) -> tuple[Tensor, Tensor]:
        wanted = [graph and asked for asked in ctx.needs_input_grad[:3]]
        device, V = states.device, weight.shape[0]
        kind = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else weight.dtype
        exact = torch.float64 if weight.dtype == torch.float64 else torch.float32
        gradients = [
            torch.zeros_like(tensor, dtype=exact) if tensor is not None and asked else None
            for tensor, asked in zip((states, weight, bias), wanted, strict=True)
        ]
        parts = torch.zeros(3, dtype=torch.float64, device=device)
        rows = max(1, (_CPU_TILE if device.type == "cpu" else _GPU_TILE) // V)
        with torch.autocast(device.type, enabled=False):
            matrix = weight.to(kind)
            for start in range(0, len(states), rows):
                block = slice(start, start + rows)
                some = states[block].to(kind)
                logits = torch.mm(some, matrix.t()).to(exact)  # [n, V]
                if bias is not None:
                    logits += bias.to(exact)
                found, slopes = _losses_and_slopes_(logits, labels[block], relu_weight)
                parts += found
                if any(wanted):
                    _add(gradients, slopes, some, matrix, block)
        ctx.kinds = [None if tensor is None else tensor.dtype for tensor in (states, weight, bias)]
        ctx.save_for_backward(*gradients)
        parts = parts.to(exact)
        ctx.mark_non_differentiable(parts)
        return parts[0] + relu_weight * parts[1], parts

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        found = (
            None if one is None else (one * gradient).to(kind)
            for one, kind in zip(ctx.saved_tensors, ctx.kinds, strict=True)
        )
        return (*found, None, None, None)


def _losses_and_slopes_(logits: Tensor, labels: Tensor, relu_weight: float) -> tuple[Tensor, Tensor]:
    """Return cross entropies and the count of labels with the largest logit, [3]; overwrite logits by the gradient."""
    own = logits.gather(1, labels[:, None])  # [n, 1]
    largest = logits.amax(dim=1, keepdim=True)
    hits = (own >= largest).sum(dtype=torch.float64)
    activated, share, positive = torch.zeros_like(hits), None, None
    if relu_weight:
        sums = logits.clamp(min=0).sum(dim=1, keepdim=True) + logits.shape[1]  # of exp(log(1 + relu(z)))
        activated = (sums.log() - own.relu().log1p()).sum(dtype=torch.float64)
        share, positive = relu_weight / sums, (logits > 0).to(logits.dtype)
    slopes = logits.sub_(largest).exp_()
    total = slopes.sum(dim=1, keepdim=True)
    plain = (total.log() + largest - own).sum(dtype=torch.float64)
    slopes.div_(total)
    at_label = torch.full_like(own, -1)
    if share is not None and positive is not None:
        slopes.addcmul_(positive, share)
        at_label -= relu_weight * (own > 0) / (1 + own.relu())
    return torch.stack([plain, activated, hits]), slopes.scatter_add_(1, labels[:, None], at_label)


def _add(gradients: list[Tensor | None], slopes: Tensor, states: Tensor, matrix: Tensor, block: slice) -> None:
    """Add the contribution of some tokens to the required gradients of states, matrix and bias."""
    of_states, of_matrix, of_bias = gradients
    products = slopes.to(matrix.dtype)
    if of_states is not None:
        of_states[block] = torch.mm(products, matrix)
    if of_matrix is not None and of_matrix.dtype == products.dtype:
        of_matrix.addmm_(products.t(), states)
    elif of_matrix is not None:
        of_matrix += torch.mm(products.t(), states)
    if of_bias is not None:
        of_bias += slopes.sum(dim=0)
