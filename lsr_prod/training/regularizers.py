"""The regularizers of an objective, with their weights, ramps and document frequencies.

Weight of joint FLOPS in relation to the batch: the share that falls on each query's own positive.

Over M documents, mean query . mean document contains the product of each query with its own positive with a weight of
1 / M. A loss of dot products with temperature tau pulls this product up with a gradient of at most weight / tau, joint
FLOPS pushes it down with joint / M. The quotient of the two, ``joint * tau / (weight * M)``, is the own share. At 1 the
push is always stronger and all vectors become empty, whatever the data. The paper (ESPLADE, C.3) has 5 / 3,072.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lsr_prod.config import objective, training
from lsr_prod.inference.terms.surfaces import cased_terms
from lsr_prod.training import process_group
from lsr_prod.training.block_dot import pair_dot
from lsr_prod.training.kept_terms import Vectors, active_terms, cut, weights_of

MAX_OWN_SHARE = 0.05
"""Own share above which a stage is warned about."""


def ramp(settings: objective.RegularizerSettings, step: int, steps: int) -> float:
    """Return the factor of a regularizer's weight at a step: 0 at step 0, 1 from ``ramp_end`` on."""
    if settings.ramp == "none":
        return 1.0
    share = min(1.0, step / ramp_end(settings, steps))
    return share if settings.ramp == "linear" else share * share


def ramp_end(settings: objective.RegularizerSettings, steps: int) -> int:
    """Return the first step with the full weight of the regularizer; 0 without a ramp."""
    if settings.ramp == "none":
        return 0
    return settings.ramp_steps or max(1, round(settings.ramp_share * steps))


# FLOPS regularizers: squared mean weights, of queries, of documents or of both.
#
# Every regularizer takes the rows of one worker and returns the value for the rows of all workers, equal on all of
# them. Its gradient is that of the worker's own rows (``process_group.global_sum``). The rows are those of the trained
# representation: masked if ``keep`` is ``masked``, else whole.


def flops(rows: Vectors, texts: int, *, l0_mask: int | None = None, term_weights: Tensor | None = None) -> Tensor:
    """Return FLOPS (ESPLADE, eq. 3): the sum over terms of the squared mean weight."""
    means = mean_weights(rows, texts, l0_mask=l0_mask)
    if term_weights is not None:
        means = means * term_weights
    return means.square().sum()


def joint_flops(queries: Vectors, documents: Vectors, *, query_texts: int, document_texts: int) -> Tensor:
    """Return joint FLOPS (ESPLADE, eq. 4): the dot product of the mean query and the mean document."""
    return mean_weights(queries, query_texts) @ mean_weights(documents, document_texts)


def off_diagonal_joint_flops(queries: Vectors, documents: Vectors, *, query_texts: int, document_texts: int) -> Tensor:
    """Return joint FLOPS without the own positives: the mean product of a query and a document over all other pairs.

    A query's product with its own positive is many times the mean. ``joint_flops`` contains it with a share of one
    divided by the number of documents, so its weight has to shrink with the batch. This mean (ours) does not depend on
    the size of the batch, nor, in expectation, on the parts into which a step is split. It is 0 without other pairs.
    """
    pairs = query_texts * document_texts - query_texts
    if not pairs:
        return weights_of(queries).new_zeros(())
    everyones = mean_weights(queries, 1) @ mean_weights(documents, 1)
    own = pair_dot(queries, documents)[:, :1].sum()  # of all own documents: a slice of them would copy its gradient
    return (everyones - process_group.global_sum(own)) / pairs


def mean_weights(rows: Vectors, texts: int, *, l0_mask: int | None = None) -> Tensor:
    """Return the mean weight of every term over the texts of all workers, [V]."""
    weights = weights_of(rows)
    enters = None if l0_mask is None else (active_terms(rows) > l0_mask).to(weights.dtype)
    if isinstance(rows, Tensor):
        # A product with the mask avoids a masked copy of the rows.
        sums = rows.sum(dim=0) if enters is None else enters @ rows
    else:
        counted = weights if enters is None else weights * enters[:, None]
        sums = weights.new_zeros(rows.vocabulary_size).index_add(0, rows.terms.flatten(), counted.flatten())
    return process_group.global_sum(sums) / texts


_JOINT = {"all_pairs": joint_flops, "off_diagonal": off_diagonal_joint_flops}


class Regularizers:
    """All regularizers of an objective."""

    def __init__(self, sparsity: objective.SparsitySettings, *, vocabulary: Sequence[str], steps: int) -> None:
        self._sparsity, self._steps = sparsity, steps
        self._frequencies = {
            f"df_flops.{i}": DocumentFrequency(
                len(vocabulary), alpha=settings.df_alpha, beta=settings.df_beta, every=settings.df_every
            )
            for i, settings in enumerate(sparsity.regularizers)
            if settings.regularizer == "df_flops"
        }
        is_cased = any(settings.regularizer == "cased" for settings in sparsity.regularizers)
        self._is_cased = torch.tensor(cased_terms(vocabulary) if is_cased else [], dtype=torch.bool)

    def values(
        self, queries: Vectors, documents: Vectors, shares: process_group.Shares, step: int
    ) -> list[tuple[str, Tensor, float]]:
        """Return the name, the value for the global batch and the weight at a step of every regularizer.

        The name of a second regularizer of the same kind contains its number: ``flops_2_document``.
        """
        query_texts, document_texts = sum(shares.queries), shares.texts
        found = []
        kinds = [settings.regularizer for settings in self._sparsity.regularizers]
        for i, settings in enumerate(self._sparsity.regularizers):
            kind = settings.regularizer
            name = f"{kind}_{i + 1}" if kind in kinds[:i] else kind
            factor = ramp(settings, step, self._steps)
            if kind == "joint_flops":
                joint = _JOINT[settings.estimator]
                value = joint(queries, documents, query_texts=query_texts, document_texts=document_texts)
                found.append((name, value, settings.joint * factor))
            if settings.query:
                value = self._value(i, settings, queries, query_texts)
                found.append((f"{name}_query", value, settings.query * factor))
            if settings.document:
                value = self._value(i, settings, documents, document_texts)
                found.append((f"{name}_document", value, settings.document * factor))
        return found

    def _value(self, i: int, settings: objective.RegularizerSettings, rows: Vectors, texts: int) -> Tensor:
        device = weights_of(rows).device
        if settings.regularizer == "l1":
            return l1(rows, texts, l0_mask=settings.l0_mask)
        if settings.regularizer == "cased":
            self._is_cased = self._is_cased.to(device)
            return cased(rows, texts, self._is_cased)
        frequencies = self._frequencies.get(f"df_flops.{i}")
        factors = None if frequencies is None else frequencies.weights(device)
        return flops(rows, texts, l0_mask=settings.l0_mask, term_weights=factors)

    def observe(self, documents: Tensor, step: int) -> None:
        """Count the terms of a step's documents, after the masks."""
        if not self._frequencies:
            return
        seen = cut(documents.detach(), self._sparsity.keep_document if self._sparsity.keep == "masked" else None)
        for frequencies in self._frequencies.values():
            frequencies.observe(seen, step)

    def state(self) -> dict[str, Tensor]:
        """Return the document frequencies, on the CPU."""
        states = {name: frequencies.state() for name, frequencies in self._frequencies.items()}
        return {f"{name}.{key}": value for name, state in states.items() for key, value in state.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore ``state()`` of the same settings."""
        for name, frequencies in self._frequencies.items():
            frequencies.load_state({key: state[f"{name}.{key}"] for key in ("counts", "shares", "position")})


def l1(rows: Vectors, texts: int, *, l0_mask: int | None = None) -> Tensor:
    """Return the mean over texts of the sum of their weights, which are at least 0."""
    return mean_weights(rows, texts, l0_mask=l0_mask).sum()


def cased(rows: Vectors, texts: int, is_cased: Tensor) -> Tensor:
    """Return the mean over texts of the sum of the squared weights of cased terms.

    Equation 3 of the paper is printed as a sum over the batch. The authors' code takes the mean, and the weight 0.2 is
    meant for it: as a sum, the term grows with the batch size.
    """
    if isinstance(rows, Tensor):
        squares = torch.linalg.vector_norm(rows, dim=0).square()  # [V], without a squared copy of the rows
        total = torch.where(is_cased, squares, 0.0).sum()
    else:
        total = torch.where(is_cased[rows.terms], rows.weights.square(), 0.0).sum()
    return process_group.global_sum(total) / texts


class DocumentFrequency:
    """Document frequencies in windows of ``every`` steps, over all workers.

    The weights of a window follow from the counts of the previous window; in the first window, from the counts so far.
    Counts are integers, so they do not depend on the number of workers, and are equal on all workers.
    """

    def __init__(self, vocabulary_size: int, *, alpha: float, beta: float, every: int) -> None:
        self._alpha, self._beta, self._every = alpha, beta, every
        self._counts = torch.zeros(vocabulary_size, dtype=torch.int64)
        self._shares = torch.zeros(vocabulary_size, dtype=torch.float64)
        self._documents = self._window = 0

    @torch.no_grad()
    def observe(self, documents: Vectors, step: int) -> None:
        """Count the documents of a step, or of one part of it; a collective operation of all workers."""
        window = step // self._every
        active = _documents_with(documents)
        self._counts = self._counts.to(active.device)
        if window != self._window:
            self._shares = self._counts.double() / max(1, self._documents)
            self._counts.zero_()
            self._window, self._documents = window, 0
        everyones = process_group.global_sum(torch.cat([active, active.new_tensor([len(documents)])]))
        self._counts += everyones[:-1]
        self._documents += int(everyones[-1])
        if self._window == 0:
            self._shares = self._counts.double() / max(1, self._documents)

    def weights(self, device: torch.device) -> Tensor:
        """Return factors of the terms' mean weights, float32 [V] in [0, 1]; 0 before the first count."""
        self._shares = self._shares.to(device)
        return frequency_weights(self._shares, alpha=self._alpha, beta=self._beta).float()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint, copied to the CPU."""
        position = torch.tensor([self._documents, self._window])
        return {"counts": self._counts.cpu().clone(), "shares": self._shares.cpu().clone(), "position": position}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore ``state()``."""
        self._counts, self._shares = state["counts"].clone(), state["shares"].clone()
        self._documents, self._window = (int(number) for number in state["position"])


def _documents_with(documents: Vectors) -> Tensor:
    """Return the number of documents with each term, int64 [V]."""
    if isinstance(documents, Tensor):
        return torch.count_nonzero(documents, dim=0)
    active = documents.weights > 0
    counts = torch.zeros(documents.vocabulary_size, dtype=torch.int64, device=active.device)
    return counts.index_add(0, documents.terms.flatten(), active.flatten().long())


def frequency_weights(shares: Tensor, *, alpha: float, beta: float) -> Tensor:
    """Return ``1 / (1 + (x ** log_alpha(2) - 1) ** beta)``: 0 for x = 0, 1/2 for x = alpha, 1 for x = 1; [V]."""
    exponent = math.log(2) / math.log(alpha)  # negative: x = 0 gives an infinite power, hence weight 0
    return 1 / (1 + (shares.pow(exponent) - 1).clamp_min(0).pow(beta))


def own_share(joint: float, losses: list[objective.LossSettings], documents: int) -> float | None:
    """Return the own share of a joint FLOPS weight with the estimator ``all_pairs``; None if all losses are of cosines.

    The loss margin_mse has no largest gradient; it counts with that of a margin wrong by one unit, 2.
    """
    dots = [loss for loss in losses if loss.similarity != "cosine"]  # no shrinking of vectors changes a cosine
    pull = sum(loss.weight * (2.0 if loss.loss == "margin_mse" else 1 / loss.temperature) for loss in dots)
    return joint / documents / pull if pull else None


def joint_warnings(stage: training.FinetuneSettings) -> list[str]:
    """Return a sentence per regularizer of the stage whose own share is above ``MAX_OWN_SHARE``."""
    documents = stage.batch.queries // stage.batch.accumulate * (1 + stage.batch.negatives)
    sentences = []
    for number, settings in enumerate(stage.objective.sparsity.regularizers):
        if settings.regularizer != "joint_flops" or settings.estimator != "all_pairs":
            continue
        share = own_share(settings.joint, stage.objective.losses, documents)
        if share is not None and share > MAX_OWN_SHARE:
            largest = settings.joint * MAX_OWN_SHARE / share
            sentences.append(
                f"objective.sparsity.regularizers.{number}.joint is {settings.joint:g}: over {documents} documents, "
                f"{share:.0%} of the largest gradient of the losses goes into pushing each query away from its own "
                f"positive (bound {MAX_OWN_SHARE:.0%}); lower it to {largest:.2g} or less, enlarge the batch, or set "
                "estimator to off_diagonal"
            )
    return sentences
