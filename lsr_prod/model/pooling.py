"""Pooling of the logits of all tokens of a text into one sparse vector.

``w_v = log(1 + relu(max_j logits_jv))`` over the pooled positions j (SPLADE-max, arXiv 2109.10086): the maximum is
taken first, so the logarithm is computed B x V times, not B x L x V times. ``l0`` applies it twice (arXiv 2504.14839).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def pad_rows(rows: Sequence[Sequence[int] | NDArray[np.int32]], padding: int) -> tuple[Tensor, Tensor]:
    """Return token ids and attention mask of some texts, int64 [B, longest text], padded at the end."""
    ids = [torch.tensor(row, dtype=torch.int64) for row in rows]
    mask = [torch.ones_like(row) for row in ids]
    return pad_sequence(ids, batch_first=True, padding_value=padding), pad_sequence(mask, batch_first=True)


def pooled_positions(attention_mask: Tensor, pooled_tokens: Literal["all", "not_bos"]) -> Tensor:
    """Return the mask of the positions to pool.

    Returns:
        bool [B, L].
    """
    if pooled_tokens == "not_bos":
        return (attention_mask * attention_mask.cumsum(dim=1)) > 1
    return attention_mask > 0


def appended_states(hidden: Tensor, attention_mask: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the states of the last ``count`` tokens of every text.

    Returns:
        States [B, count, d], and bool [B, count]: the text has that token.
    """
    steps = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    last = (attention_mask * steps).argmax(dim=1, keepdim=True)  # padding is on any side
    places = last + torch.arange(1 - count, 1, device=last.device)  # [B, count]
    index = places.clamp(min=0)
    found = (places >= 0) & (attention_mask.gather(1, index) > 0)
    return hidden.gather(1, index[:, :, None].expand(-1, -1, hidden.shape[2])), found


def fill_unpooled(hidden: Tensor, pooled: Tensor) -> Tensor:
    """Replace the state of every position outside the pool by the state of a pooled position.

    Repeating an argument does not change a maximum, so no mask of shape [B, L, V] is needed.

    Returns:
        [B, L, d].
    """
    source = pooled.to(torch.float32).argmax(dim=1)  # any pooled position
    index = source[:, None, None].expand(-1, 1, hidden.shape[2])
    return torch.where(pooled[:, :, None], hidden, hidden.gather(1, index))


def mean_states(hidden: Tensor, pooled: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean state of every text, as a text of one token (papers/esplade-pretraining, J.1).

    Returns:
        States [B, 1, d], and bool [B, 1]: the text has a pooled position.
    """
    kept = pooled[:, :, None].to(hidden.dtype)
    counts = pooled.sum(dim=1, keepdim=True)  # [B, 1]
    return (hidden * kept).sum(dim=1, keepdim=True) / counts.clamp(min=1)[:, :, None].to(hidden.dtype), counts > 0


def first_states(hidden: Tensor, pooled: Tensor) -> tuple[Tensor, Tensor]:
    """Return the state of the first token of every text, as a text of one token: [B, 1, d] and bool [B, 1]."""
    return hidden[:, :1], pooled[:, :1]


def activate(maxima: Tensor, pooled: Tensor, activation: Literal["log1p_relu", "l0"]) -> Tensor:
    """Apply the activation to maxima; a text without pooled positions becomes the zero vector.

    Returns:
        [B, V], at least 0.
    """
    weights = torch.log1p(torch.relu(maxima))
    if activation == "l0":
        weights = torch.log1p(weights)
    return torch.where(pooled.any(dim=1, keepdim=True), weights, 0.0)
