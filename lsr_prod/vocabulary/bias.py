"""The bias of a head on a new vocabulary: the prior probabilities of its terms."""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["transfer_bias", "unigram_bias"]


def transfer_bias(source: Tensor, target: Tensor) -> Tensor:
    """The target's bias in the source's scale; every row is replaced (vocabulary-transfer, eq. 10).

    Args:
        source: [V], of the model that is moved.
        target: [V'], of a model with the new vocabulary.

    Returns:
        [V'], of the source's type; all at the source's mean where the target's values are all equal.
    """
    wide, like = source.detach().double(), target.detach().double()
    spread = like.std(correction=0)
    scores = (like - like.mean()) / spread if spread > 0 else torch.zeros_like(like)
    return (wide.mean() + wide.std(correction=0) * scores).to(source.dtype)


def unigram_bias(counts: Sequence[int]) -> Tensor:
    """A bias for a vocabulary that has none: log counts of its terms in texts, of mean 0 (ours).

    A term that was not seen counts as seen once, so do all once more.

    Args:
        counts: of each of V terms.

    Returns:
        float32 [V].
    """
    logs = torch.log1p(torch.tensor(counts, dtype=torch.float64))
    return (logs - logs.mean()).float()
