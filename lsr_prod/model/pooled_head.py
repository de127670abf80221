"""The vocabulary head and its pooling as one function, which never holds logits [B, L, V].

``w_v = log(1 + relu(max_j (h_j . W_v) + b_v))`` over the pooled tokens j (SPLADE-max, arXiv 2109.10086). The product is
made a tile at a time, some terms by some texts, and the maximum over each text's tokens is taken while the tile is in
the cache. Of a weight above 0 the place of its maximum is kept, one byte for texts of up to 256 tokens: its gradient
goes to that token alone, so the backward pass touches active pairs (text, term) and multiplies no matrices.

Training in two passes (gradient cache) finds the places in the first, without a graph (``find_maxima``); the second
takes them as found and needs no product at all (``pool_vocabulary(..., found=...)``).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

__all__ = ["Maxima", "find_maxima", "pool_vocabulary"]

Activation = Literal["log1p_relu", "l0"]

# Terms and tokens of a tile. On a CPU: 2 MB, beside as much of the weight; on a GPU: large products.
_CPU_TILE = (512, 1024)
_GPU_TILE = (8192, 4096)
_PAIRS = 1 << 20  # active pairs that the backward pass has in hand at once: some 40 MB


@dataclass(frozen=True, slots=True)
class Maxima:
    """What the head found in a batch of texts.

    Attributes:
        weights: [B, V], at least 0; float32, or float64 for hidden states of that type.
        positions: uint8, int16 or int32 [B, V], the token that has the maximum; of no meaning where the weight is 0.
    """

    weights: Tensor
    positions: Tensor

    def __getitem__(self, texts: slice) -> "Maxima":
        """Those of some of the texts."""
        return Maxima(self.weights[texts], self.positions[texts])


def pool_vocabulary(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    pooled: Tensor,
    *,
    activation: Activation,
    found: Maxima | None = None,
) -> Tensor:
    """Vectors over the vocabulary. Under autocast products have its type; maxima, weights and gradients are float32.

    Where several tokens have the maximum, the first one gets the gradient.

    Args:
        hidden: [B, L, d], what the output matrix is multiplied with.
        weight: [V, d], the output matrix, tied to the embeddings or not.
        bias: [V], or None.
        pooled: bool [B, L], the positions that the maximum runs over; a text without any becomes the zero vector.
        activation: as in the encoder card.
        found: what ``find_maxima`` returned for these very states; the result is then its weights, as a function of
            ``hidden``, ``weight`` and ``bias``, and costs nothing.

    Returns:
        [B, V], at least 0; float32, or float64 for hidden states of that type.
    """
    inputs = (hidden, weight) if bias is None else (hidden, weight, bias)
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
        return _forward(hidden, weight, bias, pooled, activation, places=False)[0] if found is None else found.weights
    if found is None:
        with torch.no_grad():
            found = find_maxima(hidden, weight, bias, pooled, activation=activation)
    function: Any = _PooledHead
    weights: Tensor = function.apply(hidden, weight, bias, found.weights, found.positions, activation)
    return weights


@torch.no_grad()
def find_maxima(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, pooled: Tensor, *, activation: Activation
) -> Maxima:
    """The same vectors without a graph, and the token behind each weight. For the arguments see ``pool_vocabulary``."""
    weights, positions = _forward(hidden, weight, bias, pooled, activation, places=True)
    assert positions is not None
    return Maxima(weights, positions)


class _PooledHead(torch.autograd.Function):
    """The weights that were found as a function of what they were found in."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        weights: Tensor,
        positions: Tensor,
        activation: Activation,
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias, weights, positions)
        ctx.activation = activation
        return weights.view_as(weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, weights, positions = ctx.saved_tensors
        slopes = _slopes(gradient, weights, ctx.activation)  # [B, V]
        to_hidden = _hidden_gradient(slopes, positions, hidden, weight) if ctx.needs_input_grad[0] else None
        to_weight = _weight_gradient(slopes, positions, hidden, weight) if ctx.needs_input_grad[1] else None
        to_bias = slopes.sum(dim=0).to(bias.dtype) if ctx.needs_input_grad[2] else None
        return to_hidden, to_weight, to_bias, None, None, None


def _forward(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, pooled: Tensor, activation: Activation, *, places: bool
) -> tuple[Tensor, Tensor | None]:
    """Weights [B, V] and, if asked for, the tokens behind them."""
    (B, L, _), V, device = hidden.shape, weight.shape[0], hidden.device
    terms, tokens = _CPU_TILE if device.type == "cpu" else _GPU_TILE
    kind = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else weight.dtype
    weights = torch.zeros(B, V, dtype=_sum_type(hidden), device=device)
    positions = torch.zeros(B, V, dtype=_position_type(L), device=device) if places else None
    groups = [
        (texts, where, hidden[texts[:, None], where].to(kind).flatten(0, 1).t())  # [g], [g, l], [d, g * l]
        for texts, where in _groups(pooled, tokens)
    ]
    most = max((where.numel() for _, where, _ in groups), default=tokens)
    terms *= max(1, min(8, tokens // most))  # a few short texts: larger blocks, fewer of them
    with torch.autocast(device.type, enabled=False):
        for start in range(0, V, terms):
            block = slice(start, start + terms)
            rows = weight[block].to(kind)
            for texts, where, states in groups:
                tile = torch.mm(rows, states).view(-1, *where.shape)  # [terms, g, l]
                if positions is None:
                    maxima = tile.amax(dim=2)
                else:
                    maxima, at = tile.max(dim=2)
                    positions[texts, block] = where.gather(1, at.t()).to(positions.dtype)
                weights[texts, block] = maxima.t().to(weights.dtype)
        if bias is not None:  # once, after the maxima: a constant changes no order, rounding included
            some = pooled.any(dim=1, keepdim=True)
            weights = weights.addcmul_(some.to(weights.dtype), bias.to(weights.dtype))
        weights = weights.relu_().log1p_()
        return (weights if activation == "log1p_relu" else weights.log1p_()), positions


def _groups(pooled: Tensor, tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Texts of like length that share a tile: their rows [g] and their pooled positions [g, l].

    Within a group the last pooled position of a shorter text is repeated, which changes no maximum.
    """
    lengths = pooled.sum(dim=1)
    order = pooled.to(torch.uint8).argsort(dim=1, descending=True, stable=True)  # pooled positions first, rising
    by_length = lengths.argsort(stable=True)
    sizes: list[int] = lengths[by_length].tolist()
    start = next((i for i, size in enumerate(sizes) if size), len(sizes))
    while start < len(sizes):
        stop = start + 1
        while stop < len(sizes) and (stop + 1 - start) * sizes[stop] <= tokens:
            stop += 1
        texts = by_length[start:stop]
        steps = torch.arange(sizes[stop - 1], device=pooled.device)
        yield texts, order[texts].gather(1, torch.minimum(steps, lengths[texts, None] - 1))
        start = stop


def _slopes(gradient: Tensor, weights: Tensor, activation: Activation) -> Tensor:
    """Gradient with regard to the maxima, [B, V]; the derivative is a function of the weight itself."""
    # w = log(1 + m): dw/dm = exp(-w). l0: w = log(1 + u), u = log(1 + m): dw/dm = exp(-w) exp(-u).
    slopes = torch.exp(-weights if activation == "log1p_relu" else -weights - torch.expm1(weights))
    return slopes.mul_(gradient).masked_fill_(weights == 0, 0.0)


def _hidden_gradient(slopes: Tensor, positions: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
    """[B, L, d]: a token gets the sum of slope times output row over the terms whose maximum it has."""
    (B, L, d), V = hidden.shape, weight.shape[0]
    found = torch.empty(B * L, d, dtype=slopes.dtype, device=hidden.device)
    output = weight.to(slopes.dtype)
    size = max(1, _PAIRS // V)
    for start in range(0, B, size):
        part = slopes[start : start + size]
        text, term = part.nonzero(as_tuple=True)
        token = text * L + positions[start : start + size][text, term]
        token, order = token.sort(stable=True)
        text, term = text[order], term[order]
        found[start * L : (start + len(part)) * L] = _sums(token, term, part[text, term], output, len(part) * L)
    return found.view(B, L, d).to(hidden.dtype)


def _weight_gradient(slopes: Tensor, positions: Tensor, hidden: Tensor, weight: Tensor) -> Tensor:
    """[V, d]: a term gets the sum of slope times hidden state over the tokens that have its maxima."""
    (B, L, d), V = hidden.shape, weight.shape[0]
    found = torch.empty(V, d, dtype=slopes.dtype, device=hidden.device)
    states = hidden.reshape(B * L, d).to(slopes.dtype)
    size = max(1, _PAIRS // B)
    for start in range(0, V, size):
        part = slopes[:, start : start + size].t()
        term, text = part.nonzero(as_tuple=True)
        token = text * L + positions[text, start + term]
        found[start : start + len(part)] = _sums(term, token, part[term, text], states, len(part))
    return found.to(weight.dtype)


def _sums(row: Tensor, column: Tensor, value: Tensor, matrix: Tensor, rows: int) -> Tensor:
    """A sparse [rows, n] matrix times ``matrix`` [n, d]; ``row`` rises. The order of the sums is fixed."""
    first = torch.searchsorted(row, torch.arange(rows, device=row.device))
    return embedding_bag(column, matrix, first, mode="sum", per_sample_weights=value)


def _sum_type(hidden: Tensor) -> torch.dtype:
    return torch.float64 if hidden.dtype == torch.float64 else torch.float32


def _position_type(length: int) -> torch.dtype:
    if length <= 256:
        return torch.uint8
    return torch.int16 if length <= 32_768 else torch.int32
