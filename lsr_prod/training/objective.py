"""Training objective: the weighted sum of ranking losses, pruned losses, regularizers and the overlap term.

To add a ranking loss, write a function like ``n_pair_loss``, enter it in ``LOSSES``, and add its name to
``config.objective.LossSettings``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.config.objective import LossSettings, ObjectiveSettings
from lsr_prod.training import process_group, regularizers
from lsr_prod.training.batches import BatchKeys, false_negatives
from lsr_prod.training.kept_terms import Prunable, Vectors, cut, prune_through, temperature
from lsr_prod.training.losses import overlap, ranking
from lsr_prod.training.losses.scores import Scores

# Each takes settings, scores, the teacher's scores and ``cosine``, and returns the sum over this worker's queries,
# without the weight of its settings.
LOSSES: dict[str, Callable[..., Tensor]] = {
    "info_nce": ranking.info_nce_loss,
    "n_pair": ranking.n_pair_loss,
    "margin_mse": ranking.distillation_loss,
    "kl": ranking.distillation_loss,
}


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Loss of a step."""

    # scalar with gradient, this worker's share. The gradients of all workers' shares add up to the gradient of the
    # global batch. Their values do not: each contains the regularizers of the global batch
    total: Tensor
    # detached scalars of the global batch, equal on all workers. ``total`` is the weighted sum of the others:
    # ``pruned`` and ``overlap`` have the weights of their settings, a regularizer the weight ``<name>_weight`` (with
    # its ramp at this step), and ranking losses already contain their weights
    parts: dict[str, Tensor]


class TrainingObjective:
    """Sum of all terms of an objective.

    Ranking losses, pruned losses and the overlap term are means over the queries of the global batch; regularizers are
    computed over its texts. Neither the loss nor its gradient depends on the number of workers and their shares, except
    with ``cross_worker: false``, which restricts negatives to those of the same worker.

    Regularizers apply to whole vectors, or to masked vectors if ``keep`` is ``masked``: then nothing else is trained.
    The pruned losses and the overlap term start from the same vectors as the regularizers.

    Memory: the forward pass copies no [B, V] tensor except the documents of other workers, and these only if nothing
    masks them; masked and pruned vectors are ids and weights, ``pruning.candidates`` times as many with
    straight-through gradients, which end after the candidates, however large V is. The backward pass allocates at most
    two [B, V] tensors at a time for queries and two for documents: a gradient and the sum that it is added to.
    """

    def __init__(self, objective: ObjectiveSettings, *, vocabulary: Sequence[str], steps: int) -> None:
        self._objective, self._steps = objective, steps
        self.regularizers = regularizers.Regularizers(objective.sparsity, vocabulary=vocabulary, steps=steps)
        self._overlap = overlap.OverlapTerm(objective.overlap, len(vocabulary)) if objective.overlap else None

    def __call__(
        self,
        queries: Tensor,
        documents: Tensor,
        *,
        teacher: Tensor | None,
        step: int,
        extra_documents: Vectors | None = None,
        present: Tensor | None = None,
        keys: BatchKeys | None = None,
        extra_keys: Tensor | None = None,
    ) -> LossTerms:
        """Return the loss of this worker's part of the batch; a collective operation of all workers."""
        if (len(queries) and len(documents) % len(queries)) or len(documents) < len(queries):
            raise ValueError(f"{len(documents)} documents do not divide among {len(queries)} queries")
        if keys is not None and (extra_documents is None) != (extra_keys is None):
            raise ValueError("keys of the batch and of the extra documents are needed, or none of both")
        with torch.autocast(queries.device.type, enabled=False):  # sums over a vocabulary need more than 16 bits
            vectors = _Vectors(self._objective, _full(queries), _full(documents), extra_documents)
            texts = len(documents) if present is None else int(present.sum())
            shares = process_group.shares(len(queries), len(documents), queries.device, texts)
            if not shares.incomplete:
                present = None
            elif present is None:
                present = torch.ones(len(queries), shares.documents_of_a_query, dtype=torch.bool, device=queries.device)
            pool = shares if self._objective.cross_worker else process_group.Shares([len(queries)], [len(documents)])
            sums = self._rankings(vectors, teacher, pool, step, present, self._excluded(keys, extra_keys, pool))
            return self._terms(vectors, sums, shares, step)

    def _excluded(self, keys: BatchKeys | None, extra_keys: Tensor | None, pool: process_group.Shares) -> Tensor | None:
        """Return the documents that are no negatives of a query, bool [n, N * c + m]; None: all are."""
        contrastive = any(loss.loss in ranking.CONTRASTIVE for loss in self._objective.losses)
        if keys is None or not contrastive or not self._objective.mask_false_negatives:
            return None
        return false_negatives(keys, extra_keys, pool)

    def _terms(
        self, vectors: "_Vectors", sums: dict[str, tuple[Tensor, float]], shares: process_group.Shares, step: int
    ) -> LossTerms:
        settings = self._objective.overlap
        if self._overlap is not None and settings is not None:
            queries, documents, _ = vectors.at(settings.qk, settings.dk)
            c = shares.documents_of_a_query
            sums["overlap"] = (self._overlap(queries, documents[::c] if c > 1 else documents), settings.weight)
        own = torch.stack([value for value, _ in sums.values()]) / sum(shares.queries)
        weights = own.new_tensor([weight for _, weight in sums.values()])
        everyones = process_group.global_sum(own.detach())
        parts = dict(zip(sums, everyones.unbind(), strict=True))
        total, whole = own @ weights, everyones @ weights
        queries, documents, _ = vectors.at(None, None)
        for name, value, weight in self.regularizers.values(queries, documents, shares, step):
            total, whole = total + value * weight, whole + value.detach() * weight
            parts |= {name: value.detach(), f"{name}_weight": own.new_tensor(weight)}
        return LossTerms(total, parts | {"total": whole})

    def _rankings(
        self,
        vectors: "_Vectors",
        teacher: Tensor | None,
        pool: process_group.Shares,
        step: int,
        present: Tensor | None,
        excluded: Tensor | None,
    ) -> dict[str, tuple[Tensor, float]]:
        """Return name -> (sum over own queries, weight); losses of one kind are added up with their weights."""
        sparsity, pruning = self._objective.sparsity, self._objective.pruning
        losses = self._objective.losses

        def rank(qk: int | None, dk: int | None, temperature: float | None = None) -> list[Tensor]:
            scores = Scores(losses, *vectors.at(qk, dk, temperature), pool, present, excluded)
            values = ranking_losses(losses, scores, teacher)
            return [value * loss.weight for loss, value in zip(losses, values, strict=True)]

        sums: dict[str, tuple[Tensor, float]] = {}
        for loss, value in zip(losses, rank(None, None), strict=True):
            _add(sums, loss.loss, value)
        if sparsity.keep == "both" and (sparsity.keep_query or sparsity.keep_document):
            for loss, value in zip(losses, rank(sparsity.keep_query, sparsity.keep_document), strict=True):
                _add(sums, f"{loss.loss}_masked", value)
        if pruning is not None:
            soft = temperature(pruning, step, self._steps) if pruning.gradient == "straight_through" else None
            levels = [torch.stack(rank(qk, dk, soft)).sum() for qk, dk in pruning.levels]
            sums["pruned"] = (torch.stack(levels).mean(), pruning.weight)
        return sums


def ranking_losses(losses: Sequence[LossSettings], scores: Scores, teacher: Tensor | None) -> list[Tensor]:
    """Return the sum over own queries of every ranking loss, without its weight."""
    values = []
    for settings in losses:
        cosines = {"dot": (False,), "cosine": (True,), "both": (False, True)}[settings.similarity]
        of_kinds = [LOSSES[settings.loss](settings, scores, teacher, cosine=cosine) for cosine in cosines]
        values.append(torch.stack(of_kinds).sum())
    return values


class _Vectors:
    """Queries, documents and extra documents, pruned to a requested number of terms."""

    def __init__(self, objective: ObjectiveSettings, queries: Tensor, documents: Tensor, extra: Vectors | None) -> None:
        sparsity, pruning = objective.sparsity, objective.pruning
        levels = list(pruning.levels) if pruning else []
        self._candidates = pruning.candidates if pruning and pruning.gradient == "straight_through" else 1
        levels += [(qk * self._candidates, dk * self._candidates) for qk, dk in levels]
        if objective.overlap is not None:
            levels.append((objective.overlap.qk, objective.overlap.dk))
        query_sizes = [sparsity.keep_query, *(qk for qk, _ in levels)]
        document_sizes = [sparsity.keep_document, *(dk for _, dk in levels)]
        masked = sparsity.keep == "masked"
        document_mask = sparsity.keep_document if masked else None
        self._queries = Prunable(cut(queries, sparsity.keep_query if masked else None), query_sizes)
        self._documents = Prunable(cut(documents, document_mask), document_sizes)
        self._extra = None if extra is None else Prunable(cut(extra, document_mask), document_sizes)

    def at(
        self, qk: int | None, dk: int | None, temperature: float | None = None
    ) -> tuple[Vectors, Vectors, Vectors | None]:
        """Return the pruned vectors; with a temperature, of queries and documents by straight-through pruning."""
        extra = self._extra.keep(dk) if self._extra else None  # has no gradient
        return self._keep(self._queries, qk, temperature), self._keep(self._documents, dk, temperature), extra

    def _keep(self, vectors: Prunable, k: int | None, temperature: float | None) -> Vectors:
        if temperature is None or not k or k >= vectors.width:
            return vectors.keep(k)
        return prune_through(vectors.heaviest(k * self._candidates), k, temperature)


def _full(rows: Tensor) -> Tensor:
    return rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows


def _add(sums: dict[str, tuple[Tensor, float]], name: str, value: Tensor) -> None:
    sums[name] = (sums[name][0] + value if name in sums else value, 1.0)
