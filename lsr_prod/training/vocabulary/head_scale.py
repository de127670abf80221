"""Scale of a vocabulary head: norms of its rows, and the scores and weights that result (head-rescaling)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from lsr_prod.formats.card import Kind
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer

ALPHAS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""The constants that the paper tries (table 2)."""

_BLOCK = 65_536  # rows that are normalized at once


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
    matrix, bias = output_layer(encoder.model)
    norms, total = [], torch.zeros(matrix.shape[1], dtype=torch.float64)
    for start in range(0, len(matrix), _BLOCK):
        block = matrix.detach()[start : start + _BLOCK].cpu()
        norms.append(block.norm(dim=1))
        total += normalize(block.double(), dim=1).sum(dim=0)
    norm, n = torch.cat(norms), len(matrix)
    # The cosines of all pairs sum to |sum u|^2; those of rows with themselves sum to the number of nonzero rows.
    pairs = float(total @ total) - int((norm > 0).sum())
    return HeadNorms(
        rows=n,
        mean_norm=float(norm.mean()),
        max_norm=float(norm.max()),
        anisotropy=pairs / (n * (n - 1)),
        tied=matrix is encoder.model.get_input_embeddings().weight,
        has_bias=bias is not None,
    )


def scale_head(encoder: SparseEncoder, alpha: float) -> None:
    """Divide the output matrix by alpha, in place: ``W <- W / alpha`` (eq. 6).

    A tied matrix stays tied, so the input embeddings are divided too. The bias stays.
    """
    matrix, _ = output_layer(encoder.model)
    with torch.no_grad():
        matrix /= alpha


def probe_scale(encoder: SparseEncoder, queries: Sequence[str], positives: Sequence[str], alpha: float) -> Probe:
    """Measure scores and weights of pairs with the head divided by alpha; the encoder is unchanged afterwards."""
    matrix, _ = output_layer(encoder.model)
    before = matrix.detach().clone()
    scale_head(encoder, alpha)
    try:
        q, d = _dense(encoder, queries, "query"), _dense(encoder, positives, "document")
    finally:
        with torch.no_grad():
            matrix.copy_(before)
    scores = q @ d.t()  # [n, n]
    own = float(scores.diagonal().mean())
    others = (float(scores.sum()) - own * len(scores)) / (len(scores) * (len(scores) - 1))
    return Probe(
        alpha=alpha,
        positive_score=own,
        other_score=others,
        largest_weight=float(torch.cat([q, d]).amax(dim=1).mean()),
        query_terms=float((q > 0).sum(dim=1).float().mean()),
        document_terms=float((d > 0).sum(dim=1).float().mean()),
    )


def choose_alpha(probes: Sequence[Probe], *, max_score: float, max_weight: float) -> float:
    """Return the smallest alpha for which scores and weights are small enough for training (ours).

    A scale that leaves queries or documents without terms is never chosen. If no scale is small enough, the largest
    one that leaves terms is returned.
    """
    alive = [probe for probe in probes if min(probe.query_terms, probe.document_terms) >= 1] or list(probes[:1])
    fitting = [
        probe.alpha for probe in alive if probe.positive_score <= max_score and probe.largest_weight <= max_weight
    ]
    return fitting[0] if fitting else alive[-1].alpha


def _dense(encoder: SparseEncoder, texts: Sequence[str], kind: Kind) -> Tensor:
    batch = encoder.encode(texts, kind)
    dense = torch.zeros(len(batch), encoder.card.vocabulary_size)
    rows = np.repeat(np.arange(len(batch)), np.diff(batch.offsets))
    dense[torch.from_numpy(rows), torch.from_numpy(batch.terms).long()] = torch.from_numpy(batch.weights)
    return dense
