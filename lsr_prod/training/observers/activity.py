"""Sparsity of vectors in training: active terms, cost of retrieval, and dead terms."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lsr_prod.training.parallel.totals import largest_of_workers, sum_of_workers

_ROWS = 256  # rows per slice: a mask of the whole batch would need a quarter of its memory


def measure_activity(queries: Tensor, documents: Tensor) -> dict[str, float]:
    """Return figures of the global batch, equal on all workers; a collective operation of all workers.

    Returns:
        ``l0_query`` and ``l0_document``: mean number of active terms per text. ``activation_rate_query`` and
        ``activation_rate_document``: share of (text, term) pairs above 0. ``empty_query`` and ``empty_document``: share
        of texts without active terms. ``flops``: sum_t p_q(t) p_d(t), with p the share of texts in which t is active:
        the cost of retrieval (papers/esplade-pretraining, eq. 1) with this batch as collection. ``cosine_query`` and
        ``cosine_document``: mean cosine of all pairs of texts that are not empty; 1 if all have the same direction, 0
        without a pair.
    """
    counts = torch.zeros(2, queries.shape[1], dtype=torch.float64, device=queries.device)
    directions = torch.zeros_like(counts)  # sums of vectors of length 1
    empty = torch.zeros(2, dtype=torch.float64, device=queries.device)
    for kind, vectors in enumerate((queries, documents)):
        for rows in torch.split(vectors.detach(), _ROWS):
            counts[kind] += rows.sign().sum(dim=0, dtype=torch.float32)  # a tenth of the time of rows > 0
            lengths = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32)
            directions[kind] += torch.where(lengths > 0, 1 / lengths, 0) @ rows.float()
            empty[kind] += (lengths == 0).sum()
    texts = torch.tensor([len(queries), len(documents)], dtype=torch.float64, device=queries.device)
    # [4V + 4]: one collective operation for all figures
    total = sum_of_workers(torch.cat([counts.flatten(), directions.flatten(), texts, empty]))
    V = queries.shape[1]
    of_query, of_document, query_sum, document_sum, numbers = torch.split(total, [V, V, V, V, 4])
    query_texts, document_texts, query_empty, document_empty = numbers
    query_share = of_query / query_texts.clamp(min=1)
    document_share = of_document / document_texts.clamp(min=1)
    return {
        "l0_query": float(query_share.sum()),
        "l0_document": float(document_share.sum()),
        "activation_rate_query": float(query_share.mean()),
        "activation_rate_document": float(document_share.mean()),
        "empty_query": float(query_empty / query_texts.clamp(min=1)),
        "empty_document": float(document_empty / document_texts.clamp(min=1)),
        "flops": float(query_share @ document_share),
        "cosine_query": _mean_cosine(query_sum, float(query_texts - query_empty)),
        "cosine_document": _mean_cosine(document_sum, float(document_texts - document_empty)),
    }


def _mean_cosine(directions: Tensor, texts: float) -> float:
    """Return the mean cosine of pairs from the sum of the unit vectors: |sum|^2 = texts + the sum over all pairs."""
    if texts < 2:
        return 0.0
    return float((directions @ directions - texts) / (texts * (texts - 1)))


class DeadTerms:
    """Counter of the terms that no text of the last steps activated; part of a checkpoint.

    Observation is local to a worker; only reading combines the workers.
    """

    def __init__(self, vocabulary_size: int, *, window: int, device: torch.device | str = "cpu") -> None:
        self._window = window
        self._last = torch.full((vocabulary_size,), -1, dtype=torch.int64, device=device)

    def observe(self, vectors: Tensor, step: int) -> None:
        """Record the active terms of a step."""
        if len(vectors):
            self._last[vectors.detach().amax(dim=0) > 0] = step

    def count(self, step: int) -> int | None:
        """Return the number of dead terms; a collective operation of all workers.

        Returns:
            Terms that no text activated in the last ``window`` steps; None before ``window`` steps.
        """
        if step + 1 < self._window:
            return None
        return int((largest_of_workers(self._last) <= step - self._window).sum())

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint, equal on all workers; a collective operation of all workers.

        Returns:
            ``last_active``: int64 [V], the last step at which a term was active; -1 for never.
        """
        return {"last_active": largest_of_workers(self._last).cpu().clone()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore a checkpoint, on any number of workers."""
        self._last.copy_(state["last_active"])
