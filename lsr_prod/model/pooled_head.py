"""Vocabulary head and max pooling in one function that never allocates logits [B, L, V].

``w_v = log(1 + relu(max_j (h_j . W_v) + b_v))`` over the pooled tokens j (SPLADE-max, arXiv 2109.10086). The product is
computed in tiles of some terms by some texts, and the maximum over the tokens of each text is taken while the tile is
in the cache. The position of each maximum is stored, in one byte for texts of up to 256 tokens. Only that token gets a
gradient, so the backward pass touches only active pairs (text, term) and multiplies no matrices.

Training in two passes (gradient cache) finds the positions in the first pass, without a graph (``find_argmax``); the
second pass reuses them and computes no product (``pool_vocabulary(..., found=...)``).

Reads of a tensor's values by the host, such as its number of nonzero elements.

On a CPU they are free. On a GPU each one waits until all kernels before it have ended, and the GPU then waits for the
host. Code that would choose its shapes by values therefore has a second form with fixed shapes for GPUs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lsr_prod.model import appended_heads, pooling


def are_free(device: torch.device) -> bool:
    """Return whether reading values on a device costs nothing."""
    return device.type == "cpu"


Activation = Literal["log1p_relu", "l0"]
# Terms and tokens of a tile. CPU: 2 MB, plus as much of the output matrix; GPU: large products.
_CPU_TILE = (512, 1024)
_GPU_TILE = (8192, 4096)
_PAIRS = 1 << 20  # active pairs that the backward pass processes at once: about 40 MB


@dataclass(frozen=True, slots=True)
class PooledArgmax:
    """Pooled weights of a batch of texts, and the token of each maximum."""

    weights: Tensor  # [B, V], at least 0; float32, or float64 for hidden states of that type
    positions: Tensor  # uint8, int16 or int32 [B, V], the position of the maximum; undefined where the weight is 0


def pool_vocabulary(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    pooled: Tensor,
    *,
    activation: Activation,
    found: PooledArgmax | None = None,
    heads: appended_heads.AppendedHeads | None = None,
) -> Tensor:
    """Return vectors over the vocabulary. Autocast applies to products only; maxima, weights and gradients are float32.

    If several tokens have the maximum, the first one gets the gradient. With ``heads``, the tokens are the appended
    ones, and a term is computed at the token of its head only.

    Returns:
        [B, V], at least 0; float32, or float64 for hidden states of that type.
    """
    if found is None and heads is not None:
        found = find_argmax(hidden, weight, bias, pooled, activation=activation, heads=heads)
    inputs = (hidden, weight) if bias is None else (hidden, weight, bias)
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
        return _forward(hidden, weight, bias, pooled, activation, places=False)[0] if found is None else found.weights
    if found is None:
        with torch.no_grad():
            found = find_argmax(hidden, weight, bias, pooled, activation=activation)
    function: Any = _PooledHead
    weights: Tensor = function.apply(hidden, weight, bias, found.weights, found.positions, activation)
    return weights


@torch.no_grad()
def find_argmax(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    pooled: Tensor,
    *,
    activation: Activation,
    heads: appended_heads.AppendedHeads | None = None,
) -> PooledArgmax:
    """Return the same vectors without a graph, and the token of each weight. Arguments as in ``pool_vocabulary``."""
    if heads is not None:
        weights = pooling.activate(heads(hidden, weight, bias), pooled, activation)
        return PooledArgmax(weights, heads.heads.expand(len(weights), -1))
    weights, positions = _forward(hidden, weight, bias, pooled, activation, places=True)
    assert positions is not None
    return PooledArgmax(weights, positions)


class _PooledHead(torch.autograd.Function):
    """Connects weights that are already computed to the graph of their inputs."""

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
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, weights, positions = ctx.saved_tensors
        slopes = _slopes(gradient, weights, ctx.activation)  # [B, V]
        texts, terms = _active_counts(slopes)
        to_hidden = _hidden_gradient(slopes, positions, hidden, weight, texts) if ctx.needs_input_grad[0] else None
        to_weight = _weight_gradient(slopes, positions, hidden, weight, terms) if ctx.needs_input_grad[1] else None
        to_bias = slopes.sum(dim=0).to(bias.dtype) if ctx.needs_input_grad[2] else None
        return to_hidden, to_weight, to_bias, None, None, None


def _forward(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, pooled: Tensor, activation: Activation, *, places: bool
) -> tuple[Tensor, Tensor | None]:
    """Return weights [B, V] and, with ``places``, the position of each maximum."""
    (B, L, _), V, device = hidden.shape, weight.shape[0], hidden.device
    terms, tokens = _CPU_TILE if device.type == "cpu" else _GPU_TILE
    kind = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else weight.dtype
    weights = torch.zeros(B, V, dtype=torch.promote_types(hidden.dtype, torch.float32), device=device)
    positions = torch.zeros(B, V, dtype=_position_type(L), device=device) if places else None
    groups = [
        (texts, where, hidden[texts[:, None], where].to(kind).flatten(0, 1).t())  # [g], [g, l], [d, g * l]
        for texts, where in _groups(pooled, tokens)
    ]
    most = max((where.numel() for _, where, _ in groups), default=tokens)
    terms *= max(1, min(8, tokens // most))  # a few short texts: fewer and larger blocks
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
        some = pooled.any(dim=1, keepdim=True)
        if not are_free(device):
            weights.masked_fill_(~some, 0.0)
        if bias is not None:  # added after the maximum: a constant does not change the order, rounding included
            weights = weights.addcmul_(some.to(weights.dtype), bias.to(weights.dtype))
        weights = weights.relu_().log1p_()
        return (weights if activation == "log1p_relu" else weights.log1p_()), positions


def _groups(pooled: Tensor, tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield groups of texts of similar length that share a tile: their rows [g] and pooled positions [g, l].

    Shorter texts of a group repeat their last pooled position, which does not change the maximum.
    """
    if not are_free(pooled.device):
        yield from _padded_groups(pooled, tokens)
        return
    lengths = pooled.sum(dim=1)
    order = pooled.to(torch.uint8).argsort(dim=1, descending=True, stable=True)  # pooled positions first, ascending
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


def _padded_groups(pooled: Tensor, tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield groups of consecutive texts, all as long as the batch is wide; a text without pooled positions too."""
    B, L = pooled.shape
    last = pooled.sum(dim=1, keepdim=True).sub_(1).clamp_(min=0)
    order = pooled.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    where = order.gather(1, torch.minimum(torch.arange(L, device=pooled.device), last))  # [B, L]
    texts = torch.arange(B, device=pooled.device)
    size = max(1, tokens // L)
    yield from zip(torch.split(texts, size), torch.split(where, size), strict=True)


def _slopes(gradient: Tensor, weights: Tensor, activation: Activation) -> Tensor:
    """Return the gradient of the maxima, [B, V]; the derivative of the activation is a function of the weight."""
    # w = log(1 + m): dw/dm = exp(-w). l0: w = log(1 + u), u = log(1 + m): dw/dm = exp(-w) exp(-u).
    slopes = torch.exp(-weights if activation == "log1p_relu" else -weights - torch.expm1(weights))
    return slopes.mul_(gradient).masked_fill_(weights == 0, 0.0)


Counts = list[int] | None
"""Active pairs of each part of the backward pass; None: counted when the part is processed."""


def _active_counts(slopes: Tensor) -> tuple[Counts, Counts]:
    """Return the active pairs by parts of texts and by parts of terms: on a GPU, all in a single read of the host."""
    if are_free(slopes.device):
        return None, None
    B, V = slopes.shape
    active = slopes != 0
    by_text = [part.sum() for part in torch.split(active, max(1, _PAIRS // V))]
    by_term = [part.sum() for part in torch.split(active, max(1, _PAIRS // B), dim=1)]
    counts: list[int] = torch.stack(by_text + by_term).tolist()
    return counts[: len(by_text)], counts[len(by_text) :]


def _active(part: Tensor, counts: Counts, number: int) -> tuple[Tensor, Tensor]:
    """Return rows and columns of the active pairs of a part."""
    if counts is None:
        row, column = part.nonzero(as_tuple=True)
        return row, column
    row, column = torch.nonzero_static(part, size=counts[number]).t().contiguous()
    return row, column


def _hidden_gradient(slopes: Tensor, positions: Tensor, hidden: Tensor, weight: Tensor, counts: Counts) -> Tensor:
    """Return [B, L, d]: for each token the sum of slope x output row over the terms whose maximum it has."""
    (B, L, d), V = hidden.shape, weight.shape[0]
    found = torch.empty(B * L, d, dtype=slopes.dtype, device=hidden.device)
    output = weight.to(slopes.dtype)
    size = max(1, _PAIRS // V)
    for number, start in enumerate(range(0, B, size)):
        part = slopes[start : start + size]
        text, term = _active(part, counts, number)
        token = text * L + positions[start : start + size][text, term]
        token, order = token.sort(stable=True)
        text, term = text[order], term[order]
        found[start * L : (start + len(part)) * L] = _sums(token, term, part[text, term], output, len(part) * L)
    return found.view(B, L, d).to(hidden.dtype)


def _weight_gradient(slopes: Tensor, positions: Tensor, hidden: Tensor, weight: Tensor, counts: Counts) -> Tensor:
    """Return [V, d]: for each term the sum of slope x hidden state over the tokens that have its maximum."""
    (B, L, d), V = hidden.shape, weight.shape[0]
    found = torch.empty(V, d, dtype=slopes.dtype, device=hidden.device)
    states = hidden.reshape(B * L, d).to(slopes.dtype)
    size = max(1, _PAIRS // B)
    for number, start in enumerate(range(0, V, size)):
        part = slopes[:, start : start + size].t()
        term, text = _active(part, counts, number)
        token = text * L + positions[text, start + term]
        found[start : start + len(part)] = _sums(term, token, part[term, text], states, len(part))
    return found.to(weight.dtype)


def _sums(row: Tensor, column: Tensor, value: Tensor, matrix: Tensor, rows: int) -> Tensor:
    """Multiply a sparse matrix [rows, n] with ``matrix`` [n, d]; ``row`` is sorted. The summation order is fixed."""
    first = torch.searchsorted(row, torch.arange(rows, device=row.device))
    return torch.nn.functional.embedding_bag(column, matrix, first, mode="sum", per_sample_weights=value)


def _position_type(length: int) -> torch.dtype:
    if length <= 256:
        return torch.uint8
    return torch.int16 if length <= 32_768 else torch.int32
