"""Attention with dropout on a CPU, in tiles that fit into the cache.

The fast CPU attention of torch has no dropout: it falls back to a plain form that draws one random number per pair of
tokens and keeps three tensors of all pairs for the backward pass. Here the pairs of a few heads are computed at a time,
nothing of their size is kept, and 64 random bits decide on four pairs.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

_NAME = "lsr_cpu_dropout"
_TILE = 1 << 18  # pairs of tokens per tile: 1 MB


def use_cpu_attention(model: PreTrainedModel) -> None:
    """Make a model use ``attention_with_dropout`` for training on a CPU."""
    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention for transformers; delegate to torch's own attention all cases without CPU dropout."""
    causal = module.is_causal if is_causal is None else is_causal
    ours = dropout > 0 and not causal and query.shape == key.shape and query.device.type == "cpu"
    if not ours:
        found: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **others
        )
        return found
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(kind), key.to(kind), value.to(kind)
    return attention_with_dropout(query, key, value, attention_mask, dropout, scale).transpose(1, 2), None


def attention_with_dropout(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, scale: float
) -> Tensor:
    """Return ``dropout(softmax(scale * query key^T)) value``; its random numbers follow from torch's generator.

    Products have the type of the arguments; the softmax is float32, or float64 for arguments of that type. A query
    without any visible key gets zeros, as in torch's own attention.

    Returns:
        [B, H, L, d].
    """
    seed = int(torch.randint(2**62, ()))
    function: Any = _Attention
    attended: Tensor = function.apply(query, key, value, mask, dropout, scale, seed)
    return attended


def kept_pairs(pairs: int, dropout: float, generator: torch.Generator) -> Tensor:
    """Return the mask of kept pairs, bool [pairs]."""
    bits = torch.empty(-(-pairs // 4), dtype=torch.int64).random_(-(2**63), 2**63 - 1, generator=generator)
    return bits.view(torch.int16)[:pairs] >= round(dropout * 65_536) - 32_768


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        dropout: float,
        scale: float,
        seed: int,
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, mask)
        ctx.dropout, ctx.scale, ctx.seed = dropout, scale, seed
        found = torch.empty_like(query)
        with torch.autocast("cpu", enabled=False):
            for text, heads, shares, kept in _tiles(query, key, mask, dropout, scale, seed):
                product = torch.bmm(shares.mul_(kept).to(value.dtype), value[text, heads])
                found[text, heads] = product.mul_(_factor(dropout))
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask = ctx.saved_tensors
        to_query, to_key, to_value = (torch.empty_like(one) for one in (query, key, value))
        with torch.autocast("cpu", enabled=False):
            for text, heads, shares, kept in _tiles(query, key, mask, ctx.dropout, ctx.scale, ctx.seed):
                above = gradient[text, heads] * _factor(ctx.dropout)
                to_value[text, heads] = torch.bmm((shares * kept).to(above.dtype).transpose(1, 2), above)
                slopes = torch.bmm(above, value[text, heads].transpose(1, 2)).to(shares.dtype).mul_(kept).mul_(shares)
                # of the softmax: p (g - sum(p g))
                slopes.addcmul_(shares, slopes.sum(dim=2, keepdim=True), value=-1).mul_(ctx.scale)
                slopes = slopes.to(query.dtype)
                to_query[text, heads] = torch.bmm(slopes, key[text, heads])
                to_key[text, heads] = torch.bmm(slopes.transpose(1, 2), query[text, heads])
        return to_query, to_key, to_value, None, None, None, None


def _factor(dropout: float) -> float:
    return 1 / (1 - round(dropout * 65_536) / 65_536)


def _tiles(
    query: Tensor, key: Tensor, mask: Tensor | None, dropout: float, scale: float, seed: int
) -> Iterator[tuple[int, slice, Tensor, Tensor]]:
    """Yield text, heads, the softmax of their pairs [h, L, L] and the mask of kept pairs; equal in both passes."""
    B, H, L, _ = query.shape
    generator = torch.Generator().manual_seed(seed)
    several = max(1, _TILE // (L * L))
    for text in range(B):
        for first in range(0, H, several):
            heads = slice(first, min(first + several, H))
            scores = torch.bmm(query[text, heads], key[text, heads].transpose(1, 2))  # [h, L, L]
            scores = (scores.float() if scores.dtype.itemsize == 2 else scores).mul_(scale)
            if mask is None:
                shares = torch.softmax(scores, dim=2)
            else:
                seen = mask[text, heads if mask.shape[1] > 1 else slice(None)]
                shares = _masked_softmax(scores, seen)
            yield text, heads, shares, kept_pairs(scores.numel(), dropout, generator).view_as(scores)


def _masked_softmax(scores: Tensor, seen: Tensor) -> Tensor:
    """Return the softmax over visible keys; a query without any, such as padding outside a window, gets zeros."""
    hidden = ~seen if seen.dtype == torch.bool else seen == float("-inf")
    scores = scores.masked_fill_(hidden, float("-inf")) if seen.dtype == torch.bool else scores.add_(seen)
    return torch.softmax(scores, dim=2).masked_fill_(hidden.all(dim=2, keepdim=True), 0)
