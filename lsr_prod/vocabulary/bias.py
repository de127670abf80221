"""The bias of a head on a new vocabulary: the prior probabilities of its terms."""

from collections.abc import Sequence

import torch
from torch import Tensor


def transfer_bias(source: Tensor, target: Tensor) -> Tensor:
    """Return the target's bias, scaled to mean and deviation of the source's bias (vocabulary-transfer, eq. 10).

    Returns:
        [V'], with the source's dtype; the source's mean everywhere if all target values are equal.
    """
    wide, like = source.detach().double(), target.detach().double()
    spread = like.std(correction=0)
    scores = (like - like.mean()) / spread if spread > 0 else torch.zeros_like(like)
    return (wide.mean() + wide.std(correction=0) * scores).to(source.dtype)


def unigram_bias(counts: Sequence[int]) -> Tensor:
    """Return a bias for a vocabulary without one: log counts of its terms in texts, with mean 0 (ours).

    One is added to every count, so unseen terms have a logarithm.

    Returns:
        float32 [V].
    """
    logs = torch.log1p(torch.tensor(counts, dtype=torch.float64))
    return (logs - logs.mean()).float()
