"""The loss of a step: ranking losses, pruning-aware losses, regularisers and the threshold-aware term, added up."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.config.objective import ObjectiveSettings
from lsr_prod.training import collective
from lsr_prod.training.kept_terms import Prunable, Vectors, cut
from lsr_prod.training.overlap import OverlapTerm
from lsr_prod.training.penalties import Penalties
from lsr_prod.training.ranking import ranking_losses

__all__ = ["LossTerms", "TrainingLoss"]


@dataclass(frozen=True, slots=True)
class LossTerms:
    """What a step is judged by.

    Attributes:
        total: scalar with gradient, this worker's share. The gradients of all workers' shares add up to that of the
            global batch; the values do not, because the regularisers of the global batch are in each of them.
        parts: detached scalars of the global batch, equal on all workers. ``total`` is the sum of the others,
            where ``pruned`` and ``overlap`` have the weights of their settings, a regulariser the one beside it as
            ``<name>_weight`` (its ramp at this step is in it), and ranking losses have theirs already.
    """

    total: Tensor
    parts: dict[str, Tensor]


class TrainingLoss:
    """Everything that an objective adds up.

    Ranking losses, pruning-aware losses and the threshold-aware term are means over the queries of the global batch;
    the regularisers are of its texts. So neither the loss nor its gradient depends on how many workers share a batch
    and how it is cut, but for ``cross_worker: false``, which leaves a worker its own negatives.

    Regularisers look at whole vectors, unless ``keep`` is ``masked``: then they look at the masked ones, which are all
    that is trained. The pruned losses and the threshold-aware term start from the same vectors as the regularisers.

    Memory: the forward pass makes no further copy of a [B, V] tensor, apart from the documents of other workers
    (whole ones only where nothing masks them); masked and pruned vectors are ids and weights. The backward pass makes
    at most two for each of queries and documents at a time: a gradient, and the sum that it goes into.

    Args:
        objective: what is added up.
        vocabulary: the V output terms.
        steps: of the whole stage, which ramps are shares of.
    """

    def __init__(self, objective: ObjectiveSettings, *, vocabulary: Sequence[str], steps: int) -> None:
        self._objective = objective
        self._penalties = Penalties(objective.sparsity, vocabulary=vocabulary, steps=steps)
        self._overlap = OverlapTerm(objective.overlap, len(vocabulary)) if objective.overlap else None

    def __call__(
        self,
        queries: Tensor,
        documents: Tensor,
        *,
        teacher: Tensor | None,
        step: int,
        extra_documents: Vectors | None = None,
    ) -> LossTerms:
        """The loss of this worker's part of the batch; all workers call it together.

        Args:
            queries: [n, V], at least 0; n may be 0 on some workers.
            documents: [n * c, V]; those of query i are rows i * c to i * c + c - 1, its positive first.
            teacher: [n, c], the teacher's scores; margin_mse and kl need them.
            step: from 0.
            extra_documents: m further negatives of info_nce, the same on all workers, [m, V] or only their terms.

        Raises:
            ValueError: the shapes do not belong together, or the teacher's scores are missing.
        """
        if (len(queries) and len(documents) % len(queries)) or len(documents) < len(queries):
            raise ValueError(f"{len(documents)} documents cannot be those of {len(queries)} queries")
        with torch.autocast(queries.device.type, enabled=False):  # sums over a vocabulary need more than 16 bits
            vectors = _Vectors(self._objective, _full(queries), _full(documents), extra_documents)
            shares = collective.shares(len(queries), len(documents), queries.device)
            return self._terms(vectors, teacher, shares, step)

    def _terms(self, vectors: "_Vectors", teacher: Tensor | None, shares: collective.Shares, step: int) -> LossTerms:
        sums = self._rankings(vectors, teacher, shares if self._objective.cross_worker else None)
        settings = self._objective.overlap
        if self._overlap is not None and settings is not None:
            queries, documents, _ = vectors.at(settings.qk, settings.dk)
            c = shares.documents_of_a_query
            sums["overlap"] = (self._overlap(queries, documents[::c] if c > 1 else documents), settings.weight)
        own = torch.stack([value for value, _ in sums.values()]) / sum(shares.queries)
        weights = own.new_tensor([weight for _, weight in sums.values()])
        everyones = collective.global_sum(own.detach())
        parts = dict(zip(sums, everyones.unbind(), strict=True))
        total, whole = own @ weights, everyones @ weights
        queries, documents, _ = vectors.at(None, None)
        for name, value, weight in self._penalties.values(queries, documents, shares, step):
            total, whole = total + value * weight, whole + value.detach() * weight
            parts |= {name: value.detach(), f"{name}_weight": own.new_tensor(weight)}
        return LossTerms(total, parts | {"total": whole})

    def _rankings(
        self, vectors: "_Vectors", teacher: Tensor | None, shares: collective.Shares | None
    ) -> dict[str, tuple[Tensor, float]]:
        """Name -> sum over own queries, and weight. Losses of one kind are added under one name, with their weights."""
        sparsity, pruning = self._objective.sparsity, self._objective.pruning
        losses = self._objective.losses

        def rank(qk: int | None, dk: int | None) -> list[Tensor]:
            values = ranking_losses(losses, *vectors.at(qk, dk), teacher, shares)
            return [value * loss.weight for loss, value in zip(losses, values, strict=True)]

        sums: dict[str, tuple[Tensor, float]] = {}
        for loss, value in zip(losses, rank(None, None), strict=True):
            _add(sums, loss.loss, value)
        if sparsity.keep == "both" and (sparsity.keep_query or sparsity.keep_document):
            for loss, value in zip(losses, rank(sparsity.keep_query, sparsity.keep_document), strict=True):
                _add(sums, f"{loss.loss}_masked", value)
        if pruning is not None:
            levels = [torch.stack(rank(qk, dk)).sum() for qk, dk in pruning.levels]
            sums["pruned"] = (torch.stack(levels).mean(), pruning.weight)
        return sums

    def observe(self, documents: Tensor, step: int) -> None:
        """Count the terms of a step's documents for df_flops; once a step, or for each part of it, before its loss.

        Args:
            documents: this worker's, [m, V]; all workers call it together.
            step: from 0, never falling.
        """
        self._penalties.observe(documents, step)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps: the document frequencies, equal on all workers; on the CPU."""
        return self._penalties.state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()`` of a loss of the same settings."""
        self._penalties.load_state(state)


class _Vectors:
    """Queries, documents and extra documents, cut to as many terms as is asked for."""

    def __init__(self, objective: ObjectiveSettings, queries: Tensor, documents: Tensor, extra: Vectors | None) -> None:
        sparsity = objective.sparsity
        levels = list(objective.pruning.levels) if objective.pruning else []
        if objective.overlap is not None:
            levels.append((objective.overlap.qk, objective.overlap.dk))
        query_sizes = [sparsity.keep_query, *(qk for qk, _ in levels)]
        document_sizes = [sparsity.keep_document, *(dk for _, dk in levels)]
        masked = sparsity.keep == "masked"
        document_mask = sparsity.keep_document if masked else None
        self._queries = Prunable(cut(queries, sparsity.keep_query if masked else None), query_sizes)
        self._documents = Prunable(cut(documents, document_mask), document_sizes)
        self._extra = None if extra is None else Prunable(cut(extra, document_mask), document_sizes)

    def at(self, qk: int | None, dk: int | None) -> tuple[Vectors, Vectors, Vectors | None]:
        return self._queries.keep(qk), self._documents.keep(dk), self._extra.keep(dk) if self._extra else None


def _full(rows: Tensor) -> Tensor:
    return rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows


def _add(sums: dict[str, tuple[Tensor, float]], name: str, value: Tensor) -> None:
    sums[name] = (sums[name][0] + value if name in sums else value, 1.0)
