"""Activation potential calibration (APC): set the share of active terms by one constant (vocabulary-transfer, 4.2.3).

The activation rate (our definition) is the share of pairs (text, term) whose largest logit over the text is above 0,
for texts of the length used in training.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.model.output_layer import add_output_bias
from lsr_prod.training.data.layouts import TextForm, TokenSettings

_LARGEST_LIFT = 1 << 14
_BATCH = 16


def shift_bias(encoder: SparseEncoder, shift: float) -> None:
    """Subtract the constant c from every bias, in place, and add a bias if the head has none: ``b' <- b' - c``."""
    matrix, bias = output_layer(encoder.model)
    with torch.no_grad():
        if bias is None:
            add_output_bias(encoder.model, torch.full((len(matrix),), -shift))
        else:
            bias -= shift


def shift_for_rate(maxima: NDArray[np.float32], rate: float) -> float:
    """Return the constant c for which a share ``rate`` of the pooled maxima stays above 0: a quantile.

    Returns:
        The midpoint between the lowest maximum that stays above 0 and the next lower one.
    """
    values = maxima.ravel()
    kept = min(max(round(rate * len(values)), 1), len(values) - 1)
    parted = np.partition(values, len(values) - kept)
    lowest_kept = float(parted[len(values) - kept])
    return (lowest_kept + float(parted[: len(values) - kept].max())) / 2


def activation_rate(encoder: SparseEncoder, texts: Sequence[str], *, max_length: int) -> float:
    """Return the share of pairs (text, term) with a weight above 0."""
    active = sum(int((weights > 0).sum()) for weights in _weights(encoder, texts, max_length))
    return active / (len(texts) * encoder.card.vocabulary_size)


def pooled_maxima(encoder: SparseEncoder, texts: Sequence[str], rate: float, *, max_length: int) -> NDArray[np.float32]:
    """Return the largest logit of every text and term; at least a share ``rate`` is exact, the rest are lower values.

    The logits are computed from the weights, so they include everything between logits and weights. If fewer terms
    than needed are active, the biases are raised while the weights are computed.

    Returns:
        [n, V].
    """
    lift = 0.0
    while True:
        with _lifted(encoder, lift):
            weights = torch.cat(list(_weights(encoder, texts, max_length)))
        if float((weights > 0).float().mean()) > rate:
            maxima = torch.expm1(weights)
            if encoder.card.activation == "l0":
                maxima = torch.expm1(maxima)
            return maxima.sub_(lift).numpy()
        if lift > _LARGEST_LIFT:
            raise ConfigError(
                "activation_rate",
                "no constant reaches this rate with this head",
                "check the norms of the head with lsr-prod inspect vocabulary",
            )
        lift = max(4.0, 4 * lift)


@contextmanager
def _lifted(encoder: SparseEncoder, lift: float) -> Iterator[None]:
    """Raise every bias inside the block."""
    if not lift:
        yield
        return
    if output_layer(encoder.model)[1] is None:
        shift_bias(encoder, 0.0)
    _, bias = output_layer(encoder.model)
    assert bias is not None
    before = bias.detach().clone()
    shift_bias(encoder, -lift)
    try:
        yield
    finally:
        with torch.no_grad():
            bias.copy_(before)


@torch.inference_mode()
def _weights(encoder: SparseEncoder, texts: Sequence[str], max_length: int) -> Iterator[Tensor]:
    """Yield weights [16, V] of texts of similar length."""
    was_training = encoder.training
    encoder.eval()
    form = TextForm(encoder.card.document_prompt, max_length)
    rows = TokenSettings(encoder.tokenizer.backend_tokenizer.to_str(), form, form).token_ids(texts, form)
    rows.sort(key=len)
    device, padding = encoder.model.device, encoder.model.config.pad_token_id or 0
    for start in range(0, len(rows), _BATCH):
        some = [torch.from_numpy(row).long() for row in rows[start : start + _BATCH]]
        lengths = torch.tensor([len(row) for row in some])
        ids = pad_sequence(some, batch_first=True, padding_value=padding)
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        yield encoder(ids.to(device), mask.to(device)).float().cpu()
    encoder.train(was_training)
