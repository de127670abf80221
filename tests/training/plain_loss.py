"""The loss of a whole batch written out plainly: one query at a time, one score at a time, no worker, no shortcut."""

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from lsr_prod.config.objective import LossSettings, ObjectiveSettings, PruningSettings, RegularizerSettings


@dataclass(frozen=True, slots=True)
class PlainKeys:
    """Keys of all texts of the global batch and of the queue; rows of the training set, those of the batch first."""

    queries: list[int]
    documents: list[int]
    extra: list[int]
    rows: list[tuple[int, int]]

    def is_negative(self, query: int, document: int) -> bool:
        """True if no row of the training set has this query with this document."""
        return all(row != (self.queries[query], document) for row in self.rows)


def plain_total(
    objective: ObjectiveSettings,
    vocabulary: list[str],
    queries: Tensor,
    documents: Tensor,
    teacher: Tensor,
    extra: Tensor | None,
    step: int,
    steps: int,
    present: Tensor | None = None,
    keys: PlainKeys | None = None,
) -> Tensor:
    if present is None:
        present = torch.ones(len(queries), len(documents) // len(queries), dtype=torch.bool)
    sparsity = objective.sparsity
    masks = (sparsity.keep_query or 0, sparsity.keep_document or 0)
    if sparsity.keep == "masked":
        queries, documents = top(queries, masks[0]), top(documents, masks[1])
        extra = None if extra is None else top(extra, masks[1])
    total = rankings(objective.losses, queries, documents, teacher, extra, 0, 0, present, keys)
    if sparsity.keep == "both" and any(masks):
        total = total + rankings(objective.losses, queries, documents, teacher, extra, *masks, present, keys)
    if objective.pruning is not None:
        for qk, dk in objective.pruning.levels:
            kept = top_through(objective.pruning, queries, qk, step, steps)
            kept_documents = top_through(objective.pruning, documents, dk, step, steps)
            kept_extra = None if extra is None else top(extra, dk)
            pruned = rankings(objective.losses, kept, kept_documents, teacher, kept_extra, 0, 0, present, keys)
            total = total + objective.pruning.weight * pruned / len(objective.pruning.levels)
    if objective.overlap is not None:
        total = total + objective.overlap.weight * overlap(objective, queries, documents)
    texts = documents[present.flatten()]
    positives = (present.sum(1).cumsum(0) - present.sum(1)).tolist()  # place of each query's own in texts
    for penalty in sparsity.regularizers:
        total = total + ramp(penalty, step, steps) * regularizer(penalty, vocabulary, queries, texts, positives)
    return total


def rankings(
    losses: list[LossSettings],
    queries: Tensor,
    documents: Tensor,
    teacher: Tensor,
    extra: Tensor | None,
    qk: int,
    dk: int,
    present: Tensor,
    keys: PlainKeys | None = None,
) -> Tensor:
    queries, documents = top(queries, qk), top(documents, dk)
    extra = documents[:0] if extra is None else top(extra, dk)
    n, c = len(queries), len(documents) // len(queries)
    total = torch.zeros((), dtype=queries.dtype)

    def negatives(i: int, chosen: list[int]) -> list[int]:
        there = [j for j in chosen if j != i * c and present[j // c, j % c]]
        return [j for j in there if keys is None or keys.is_negative(i, keys.documents[j])]

    def extra_negatives(i: int) -> list[int]:
        return [j for j in range(len(extra)) if keys is None or keys.is_negative(i, keys.extra[j])]

    for loss in losses:
        for kind in ("dot", "cosine") if loss.similarity == "both" else (loss.similarity,):
            temperature = loss.temperature if kind == "dot" else loss.cosine_temperature
            for i in range(n):
                has = [j for j in range(c) if present[i, j]]
                own = [similarity(kind, queries[i], documents[i * c + j]) for j in has]
                marks = teacher[i, has]
                positive = own[0] - loss.margin
                if loss.loss == "info_nce":
                    chosen = list(range(n * c) if loss.in_batch else range(i * c, i * c + c))
                    others = [similarity(kind, queries[i], documents[j]) for j in negatives(i, chosen)]
                    if loss.in_batch:
                        others += [similarity(kind, queries[i], extra[j]) for j in extra_negatives(i)]
                    value = cross_entropy(positive, others, temperature)
                elif loss.loss == "n_pair":
                    chosen = list(range(0, n * c, c))
                    others = [similarity(kind, queries[i], documents[j]) for j in negatives(i, chosen)]
                    value = cross_entropy(own[0], others, temperature)
                elif loss.loss == "margin_mse":
                    pairs = list(zip(own, marks, strict=True))[1:]
                    margins = [((own[0] - score) - (marks[0] - mark)).square() for score, mark in pairs]
                    value = torch.stack(margins).mean() if margins else own[0] * 0
                else:
                    target = torch.softmax(marks / loss.temperature, 0)
                    student = torch.log_softmax(torch.stack(own) / temperature, 0)
                    value = (target * (target.log() - student)).sum()
                total = total + loss.weight * value / n
    return total


def cross_entropy(positive: Tensor, negatives: list[Tensor], temperature: float) -> Tensor:
    scores = torch.stack([positive, *negatives]) / temperature
    return scores.exp().sum().log() - scores[0]


def similarity(kind: str, query: Tensor, document: Tensor) -> Tensor:
    dot = (query * document).sum()
    if kind == "dot":
        return dot
    size = (query.square().sum() * document.square().sum()).sqrt()
    return dot / size if size > 0 else dot


def top(rows: Tensor, k: int) -> Tensor:
    if not k:
        return rows
    kept = torch.zeros_like(rows, dtype=torch.bool)
    for i, row in enumerate(rows.tolist()):
        kept[i, sorted(range(len(row)), key=lambda term: (-row[term], term))[:k]] = True
    return torch.where(kept, rows, 0.0)


def top_through(pruning: PruningSettings, rows: Tensor, k: int, step: int, steps: int) -> Tensor:
    """The k heaviest terms; the gradient passes through a sigmoid around the k-th weight."""
    if pruning.gradient == "hard" or not k or k >= rows.shape[1]:
        return top(rows, k)
    start, end = pruning.temperature_start, pruning.temperature_end
    temperature = math.exp(math.log(start) + (math.log(end) - math.log(start)) * step / (steps - 1))
    factors = torch.zeros_like(rows)
    for i, row in enumerate(rows.tolist()):
        ranking = sorted(range(len(row)), key=lambda term: (-row[term], term))
        kth, active = row[ranking[k - 1]], sum(weight > 0 for weight in row)
        for term in ranking[: pruning.candidates * k]:
            factors[i, term] = 1 / (1 + math.exp((kth - row[term]) / temperature)) if active > k else 1.0
    soft = rows * factors
    return top(rows, k).detach() + soft - soft.detach()


def overlap(objective: ObjectiveSettings, queries: Tensor, documents: Tensor) -> Tensor:
    settings = objective.overlap
    assert settings is not None
    n, c = len(queries), len(documents) // len(queries)
    queries, positives = top(queries, settings.qk), top(documents[::c], settings.dk)
    total = torch.zeros((), dtype=queries.dtype)
    for query, positive in zip(queries, positives, strict=True):
        size = int((query > 0).sum())
        if size:
            a, b = query / (query + settings.softness), positive / (positive + settings.softness)
            shared = (a * b).sum()
            if settings.term == "jaccard":
                total = total + 1 - shared / (a.sum() + b.sum() - shared)
            else:
                required = max(1, math.ceil(Fraction(str(settings.overlap_threshold)) * size))
                total = total + torch.relu(required / size - shared / a.sum())
    return total / n


def ramp(penalty: RegularizerSettings, step: int, steps: int) -> float:
    if penalty.ramp == "none":
        return 1.0
    share = min(1.0, step / (penalty.ramp_steps or max(1, round(penalty.ramp_share * steps))))
    return share if penalty.ramp == "linear" else share**2


def regularizer(
    penalty: RegularizerSettings, vocabulary: list[str], queries: Tensor, documents: Tensor, positives: list[int]
) -> Tensor:
    if penalty.estimator == "off_diagonal":
        others = [q @ d for q, own in zip(queries, positives, strict=True) for j, d in enumerate(documents) if j != own]
        return penalty.joint * torch.stack(others).mean()
    if penalty.regularizer == "joint_flops":
        return penalty.joint * (queries.mean(0) * documents.mean(0)).sum()
    total = torch.zeros((), dtype=queries.dtype)
    for rows, weight in ((queries, penalty.query), (documents, penalty.document)):
        entering = rows
        if penalty.l0_mask is not None:
            entering = rows * ((rows > 0).sum(1, keepdim=True) > penalty.l0_mask)
        if penalty.regularizer == "flops":
            value = entering.mean(0).square().sum()
        elif penalty.regularizer == "l1":
            value = entering.sum(1).mean()
        elif penalty.regularizer == "cased":
            value = sum((rows[:, t].square().mean() for t, term in enumerate(vocabulary) if term != term.lower()))
        else:
            shares = (documents > 0).double().mean(0)
            factors = [
                0.0 if x == 0 else 1 / (1 + (x ** math.log(2, penalty.df_alpha) - 1) ** penalty.df_beta)
                for x in shares.tolist()
            ]
            value = (torch.tensor(factors).to(rows.dtype) * rows.mean(0)).square().sum()
        total = total + weight * value
    return total
