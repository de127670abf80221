"""The ranking losses of one pair of representations: scores are made once and shared by all losses."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from lsr_prod.config.objective import LossSettings
from lsr_prod.training import collective, objectives, similarity
from lsr_prod.training.kept_terms import Vectors, all_vectors

__all__ = ["ranking_losses"]


def ranking_losses(
    losses: Sequence[LossSettings],
    queries: Vectors,
    documents: Vectors,
    extra_documents: Vectors | None,
    teacher: Tensor | None,
    shares: collective.Shares | None,
) -> list[Tensor]:
    """The value of every loss, without its weight.

    Args:
        losses: which ones.
        queries: n vectors.
        documents: n * c vectors, in the order in which ``TrainingLoss`` takes them.
        extra_documents: m vectors, further negatives of info_nce.
        teacher: [n, c], or None where no loss needs it.
        shares: how the batch is shared, where the documents of other workers are negatives too; None: only one's own.

    Returns:
        A scalar for each loss, the sum over the own queries.
    """
    scores = _Scores(losses, queries, documents, extra_documents, shares)
    values = []
    for loss in losses:
        kinds = {"dot": (False,), "cosine": (True,), "both": (False, True)}[loss.similarity]
        of_kinds = [_value(loss, scores, teacher, cosine=cosine) for cosine in kinds]
        values.append(torch.stack(of_kinds).sum())
    return values


def _value(loss: LossSettings, scores: "_Scores", teacher: Tensor | None, *, cosine: bool) -> Tensor:
    temperature = loss.cosine_temperature if cosine else loss.temperature
    if loss.loss == "n_pair":
        # A cosine has to be scaled to rank; a dot product is taken as it is.
        return objectives.info_nce(
            scores.positives(cosine=cosine), scores.own, temperature=temperature if cosine else 1.0
        )
    if loss.loss == "info_nce" and loss.in_batch:
        return objectives.info_nce(
            scores.all(cosine=cosine), scores.own * scores.c, temperature=temperature, margin=loss.margin
        )
    pairs = scores.pairs(cosine=cosine)
    if not len(pairs):
        return pairs.sum()  # a worker without queries; c is unknown to it
    if loss.loss == "info_nce":
        first = torch.zeros(len(pairs), dtype=torch.int64, device=pairs.device)
        return objectives.info_nce(pairs, first, temperature=temperature, margin=loss.margin)
    if teacher is None:
        raise ValueError(f"{loss.loss} needs the teacher's scores")
    if loss.loss == "margin_mse":
        return objectives.margin_mse(pairs, teacher)
    return objectives.kl(pairs, teacher, temperature=temperature, teacher_temperature=loss.temperature)


class _Scores:
    """Scores of one pair of representations; dot products and norms are computed once, when they are first needed."""

    def __init__(
        self,
        losses: Sequence[LossSettings],
        queries: Vectors,
        documents: Vectors,
        extra_documents: Vectors | None,
        shares: collective.Shares | None,
    ) -> None:
        n = len(queries)
        shares = shares or collective.Shares([n], [len(documents)])
        self.c = shares.documents_of_a_query
        self._queries, self._documents, self._extra_documents = queries, documents, extra_documents
        in_batch = any(loss.loss == "info_nce" and loss.in_batch for loss in losses)
        # Without info_nce only positives are scored with all queries.
        self._pool_step = 1 if in_batch else self.c
        self._pool_counts = shares.documents if in_batch else shares.queries
        device = (queries if isinstance(queries, Tensor) else queries.terms).device
        before = sum(shares.queries[: collective.rank()]) if len(shares.queries) > 1 else 0
        self.own = before + torch.arange(n, device=device)
        """int64 [n]: which of all positives is each query's own."""

    def all(self, *, cosine: bool) -> Tensor:
        """Scores with the documents of all queries, then the extra ones, [n, N * c + m]."""
        if self._extra_documents is None or not len(self._extra_documents):
            return self._pool(cosine)
        return torch.cat([self._pool(cosine), self._extra(cosine)], dim=1)

    def positives(self, *, cosine: bool) -> Tensor:
        """Scores with the positives of all queries, [n, N]."""
        return self._pool(cosine)[:, :: self.c // self._pool_step]

    def pairs(self, *, cosine: bool) -> Tensor:
        """Scores with a query's own documents, [n, c]."""
        dots = self._pair_dots
        if not cosine:
            return dots
        return similarity.cosine(dots, self._query_norms, self._document_norms.view(dots.shape))

    def _pool(self, cosine: bool) -> Tensor:
        if not cosine:
            return self._pool_dots
        pool_norms = self._document_norms[:: self._pool_step]
        if len(self._pool_counts) > 1:
            pool_norms = collective.all_rows(pool_norms, self._pool_counts)
        return similarity.cosine(self._pool_dots, self._query_norms, pool_norms)

    def _extra(self, cosine: bool) -> Tensor:
        assert self._extra_documents is not None
        dots = similarity.dot(self._queries, self._extra_documents)
        if not cosine:
            return dots
        return similarity.cosine(dots, self._query_norms, similarity.norms(self._extra_documents))

    @cached_property
    def _pool_dots(self) -> Tensor:
        pool = self._documents if self._pool_step == 1 else self._documents[:: self._pool_step]
        if len(self._pool_counts) > 1:
            pool = all_vectors(pool, self._pool_counts)
        return similarity.dot(self._queries, pool)

    @cached_property
    def _pair_dots(self) -> Tensor:
        return similarity.pair_dot(self._queries, self._documents)

    @cached_property
    def _query_norms(self) -> Tensor:
        return similarity.norms(self._queries)

    @cached_property
    def _document_norms(self) -> Tensor:
        return similarity.norms(self._documents)
