"""Calibration and scale of a vocabulary head.

Activation potential calibration (APC) sets the share of active terms by one constant (vocabulary-transfer, 4.2.3). The
activation rate (our definition) is the share of pairs (text, term) whose largest logit over the text is above 0, for
texts of the length used in training. The scale of the head decides norms, scores and weights (head-rescaling).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from lsr_prod import errors, logs
from lsr_prod.model import SparseEncoder, backbone, pooling
from lsr_prod.model.output_layer import add_output_bias, is_tied
from lsr_prod.storage.formats.bundle_format import Kind
from lsr_prod.training.data.layouts import TextForm, TokenSettings

log = logs.get_log(__name__)

_LARGEST_LIFT = 1 << 14
_BATCH = 16
ALPHAS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""The constants that the paper tries (table 2)."""
_BLOCK = 65_536  # rows that are normalized at once


def shift_bias(encoder: SparseEncoder, shift: float | torch.Tensor) -> None:
    """Subtract a constant, or one per term [V], from the biases, in place, and add a bias if the head has none."""
    matrix, bias = backbone.output_layer(encoder.model)
    constants = torch.as_tensor(shift, dtype=torch.float32).expand(len(matrix))
    with torch.no_grad():
        if bias is None:
            add_output_bias(encoder.model, -constants)
        else:
            bias -= constants.to(bias)


def shift_for_rate(maxima: NDArray[np.float32], rate: float) -> float:
    """Return the constant for which a share ``rate`` of the pooled maxima stays above 0: midway between two of them."""
    values = maxima.ravel()
    kept = min(max(round(rate * len(values)), 1), len(values) - 1)
    parted = np.partition(values, len(values) - kept)
    return (float(parted[len(values) - kept]) + float(parted[: len(values) - kept].max())) / 2


def shifts_for_rate(maxima: NDArray[np.float32], rate: float) -> NDArray[np.float32]:
    """Return a constant per term [V] for which a share ``rate`` of the pooled maxima stays above 0 (ours).

    Each constant is as many standard deviations above the mean of its term, so that a term that is high in every text,
    as most outputs of a decoder are, does not stay active in every text.
    """
    mean, deviation = maxima.mean(axis=0), maxima.std(axis=0)
    standard = (maxima - mean) / np.maximum(deviation, np.finfo(np.float32).tiny)
    constants: NDArray[np.float32] = mean + np.float32(shift_for_rate(standard, rate)) * deviation
    return constants


def activation_rate(encoder: SparseEncoder, texts: Sequence[str], *, max_length: int) -> float:
    """Return the share of pairs (text, term) with a weight above 0."""
    active = sum(int((weights > 0).sum()) for weights in _weights(encoder, texts, max_length))
    return active / (len(texts) * encoder.card.vocabulary_size)


def pooled_maxima(encoder: SparseEncoder, texts: Sequence[str], rate: float, *, max_length: int) -> NDArray[np.float32]:
    """Return the largest logit of every text and term, [n, V]; at least a share ``rate`` is exact, others are lower.

    The logits are computed from the weights, so they include everything between logits and weights. If fewer terms
    than needed are active, the biases are raised while the weights are computed.
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
            problem = "no constant reaches this rate with this head"
            remedy = "check the norms of the head with lsr-prod inspect vocabulary"
            raise errors.ConfigError("activation_rate", problem, remedy)
        lift = max(4.0, 4 * lift)


@contextmanager
def _lifted(encoder: SparseEncoder, lift: float) -> Iterator[None]:
    """Raise every bias inside the block."""
    if not lift:
        yield
        return
    shift_bias(encoder, 0.0)  # adds a bias if the head has none
    _, bias = backbone.output_layer(encoder.model)
    assert bias is not None
    before = bias.detach().clone()
    shift_bias(encoder, -lift)
    try:
        yield
    finally:
        with torch.no_grad():
            bias.copy_(before)


@torch.inference_mode()
def _weights(encoder: SparseEncoder, texts: Sequence[str], max_length: int) -> Iterator[torch.Tensor]:
    """Yield weights [16, V] of texts of similar length."""
    was_training = encoder.training
    encoder.eval()
    form = TextForm(encoder.card.document_prompt, max_length)
    rows = TokenSettings(encoder.tokenizer.backend_tokenizer.to_str(), form, form).token_ids(texts, form)
    rows.sort(key=len)
    device, padding = encoder.model.device, encoder.model.config.pad_token_id or 0
    for start in range(0, len(rows), _BATCH):
        ids, mask = pooling.pad_rows(rows[start : start + _BATCH], padding)
        yield encoder(ids.to(device), mask.to(device)).float().cpu()
    encoder.train(was_training)


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """A row of the paper's table 1."""

    rows: int  # V
    mean_norm: float  # mean L2 norm of the output matrix's rows
    max_norm: float  # the largest
    anisotropy: float  # mean cosine of all pairs of rows
    tied: bool  # the output matrix is tied to the input embeddings
    has_bias: bool  # the head has a bias


@dataclass(frozen=True, slots=True)
class Probe:
    """Scores and weights of sample pairs with a head of some scale (ours)."""

    alpha: float  # the constant that divided the matrix
    positive_score: float  # mean score of a query and its positive
    other_score: float  # mean score of a query and the positives of others
    largest_weight: float  # mean over the texts of the largest weight
    query_terms: float  # mean number of active terms per query
    document_terms: float  # mean number of active terms per document


def head_norms(encoder: SparseEncoder) -> HeadNorms:
    """Return norms and anisotropy of an encoder's output matrix."""
    matrix, bias = backbone.output_layer(encoder.model)
    blocks = [block.cpu() for block in torch.split(matrix.detach(), _BLOCK)]
    norm, n = torch.cat([block.norm(dim=1) for block in blocks]), len(matrix)
    total = torch.stack([normalize(block.double(), dim=1).sum(dim=0) for block in blocks]).sum(dim=0)
    # The cosines of all pairs sum to |sum u|^2; those of rows with themselves sum to the number of nonzero rows.
    return HeadNorms(
        rows=n,
        mean_norm=float(norm.mean()),
        max_norm=float(norm.max()),
        anisotropy=(float(total @ total) - int((norm > 0).sum())) / (n * (n - 1)),
        tied=is_tied(encoder.model),
        has_bias=bias is not None,
    )


def scale_head(encoder: SparseEncoder, alpha: float) -> None:
    """Divide the output matrix by alpha, in place: ``W <- W / alpha`` (eq. 6).

    A tied matrix stays tied, so the input embeddings are divided too. The bias stays.
    """
    matrix, _ = backbone.output_layer(encoder.model)
    with torch.no_grad():
        matrix /= alpha


def probe_scale(encoder: SparseEncoder, queries: Sequence[str], positives: Sequence[str], alpha: float) -> Probe:
    """Measure scores and weights of pairs with the head divided by alpha; the encoder is unchanged afterwards."""
    matrix, _ = backbone.output_layer(encoder.model)
    before = matrix.detach().clone()
    scale_head(encoder, alpha)
    try:
        q, d = _dense(encoder, queries, "query"), _dense(encoder, positives, "document")
    finally:
        with torch.no_grad():
            matrix.copy_(before)
    scores = q @ d.t()  # [n, n]
    own = float(scores.diagonal().mean())
    return Probe(
        alpha=alpha,
        positive_score=own,
        other_score=(float(scores.sum()) - own * len(scores)) / (len(scores) * max(1, len(scores) - 1)),
        largest_weight=float(torch.cat([q, d]).amax(dim=1).mean()),
        query_terms=float((q > 0).sum(dim=1).float().mean()),
        document_terms=float((d > 0).sum(dim=1).float().mean()),
    )


def choose_alpha(probes: Sequence[Probe], *, max_score: float, max_weight: float) -> float:
    """Return the smallest alpha for which scores and weights are small enough for training (ours).

    A scale that leaves queries or documents without terms is never chosen. If no scale is small enough, that is logged,
    and the largest one that leaves terms is returned.
    """
    alive = [probe for probe in probes if min(probe.query_terms, probe.document_terms) >= 1] or list(probes[:1])
    for probe in alive:
        if probe.positive_score <= max_score and probe.largest_weight <= max_weight:
            return probe.alpha
    last = alive[-1]
    log.warning(
        "no alpha fits: %g leaves a mean score of %.1f (at most %g) and a largest weight of %.2f (at most %g); "
        "calibrate the head, or raise max_score and max_weight",
        last.alpha, last.positive_score, max_score, last.largest_weight, max_weight,
    )  # fmt: skip
    return last.alpha


def _dense(encoder: SparseEncoder, texts: Sequence[str], kind: Kind) -> torch.Tensor:
    batch = encoder.encode(texts, kind)
    dense = torch.zeros(len(batch), encoder.card.vocabulary_size)
    rows = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))
    dense[torch.from_numpy(rows), torch.from_numpy(batch.terms).long()] = torch.from_numpy(batch.weights)
    return dense
