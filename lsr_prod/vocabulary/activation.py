"""Activation potential calibration, APC: the share of active terms is set by one constant (vocabulary-transfer, 4.2.3).

The activation rate is our definition: the share of pairs of text and term whose largest logit over the text is above 0,
on texts of the length that is trained with.
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
from lsr_prod.training_data.tokens import TextForm, TokenSettings

__all__ = ["activation_rate", "pooled_maxima", "shift_bias", "shift_for_rate"]

_LARGEST_LIFT = 1 << 14
_BATCH = 16


def shift_bias(encoder: SparseEncoder, shift: float) -> None:
    """Take the constant c from every bias, in place; a head without a bias gets one: ``b' <- b' - c``."""
    matrix, bias = output_layer(encoder.model)
    with torch.no_grad():
        if bias is None:
            add_output_bias(encoder.model, torch.full((len(matrix),), -shift))
        else:
            bias -= shift


def shift_for_rate(maxima: NDArray[np.float32], rate: float) -> float:
    """The constant c with which that share of pooled maxima stays above 0: their quantile.

    Args:
        maxima: pooled maxima of every pair of text and term, any shape.
        rate: share wanted, between 0 and 1.

    Returns:
        Midway between the last maximum that stays above 0 and the first that does not.
    """
    values = maxima.ravel()
    kept = min(max(round(rate * len(values)), 1), len(values) - 1)
    parted = np.partition(values, len(values) - kept)
    lowest_kept = float(parted[len(values) - kept])
    return (lowest_kept + float(parted[: len(values) - kept].max())) / 2


def activation_rate(encoder: SparseEncoder, texts: Sequence[str], *, max_length: int) -> float:
    """Share of pairs of text and term with a weight above 0.

    Args:
        encoder: any encoder.
        texts: documents; each has a visible character.
        max_length: tokens of a text.
    """
    active = sum(int((weights > 0).sum()) for weights in _weights(encoder, texts, max_length))
    return active / (len(texts) * encoder.card.vocabulary_size)


def pooled_maxima(encoder: SparseEncoder, texts: Sequence[str], rate: float, *, max_length: int) -> NDArray[np.float32]:
    """Largest logit of every text and term; at least that share of them exactly, the others as some lower value.

    They are read off the weights, so whatever an encoder does between logits and weights is in them. Where fewer terms
    than asked for are active, the biases are lifted for as long as it takes to read them.

    Args:
        encoder: any encoder; it is the same afterwards, but that a head without a bias may have one of zeros.
        texts: documents; each has a visible character.
        rate: share of the maxima that is needed.
        max_length: tokens of a text.

    Returns:
        [n, V].

    Raises:
        ConfigError: the head's logits are no numbers.
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
            raise ConfigError("activation_rate", "no constant reaches it with this head", "look at its norms")
        lift = max(4.0, 4 * lift)


@contextmanager
def _lifted(encoder: SparseEncoder, lift: float) -> Iterator[None]:
    """Every bias is larger inside the block."""
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
    """Weights [16, V] of texts of like length."""
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
