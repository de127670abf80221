"""How sparse the vectors of a training are: active terms, what retrieval would cost, and terms that died."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lsr_prod.training.parallel.totals import largest_of_workers, sum_of_workers

__all__ = ["DeadTerms", "measure_activity"]

_ROWS = 256  # looked at together: a mask of the whole batch would be a quarter of its memory


def measure_activity(queries: Tensor, documents: Tensor) -> dict[str, float]:
    """Figures of the global batch; every worker has to call it.

    Args:
        queries: [n, V], this worker's, at least 0.
        documents: [m, V], this worker's, at least 0.

    Returns:
        ``l0_query`` and ``l0_document``: active terms of a text, the mean. ``activation_rate_query`` and
        ``activation_rate_document``: share of (text, term) above 0. ``empty_query`` and ``empty_document``: share of
        texts without an active term. ``flops``: sum_t p_q(t) p_d(t), p the share of texts in which t is active, which
        is the cost of retrieval (papers/esplade-pretraining, eq. 1) with this batch as collection. All are the same
        on each worker.
    """
    counts = torch.zeros(2, queries.shape[1], dtype=torch.float64, device=queries.device)
    empty = torch.zeros(2, dtype=torch.float64, device=queries.device)
    for kind, vectors in enumerate((queries, documents)):
        for rows in torch.split(vectors.detach(), _ROWS):
            counts[kind] += rows.sign().sum(dim=0, dtype=torch.float32)  # a tenth of the time of rows > 0
            empty[kind] += (rows.amax(dim=1) == 0).sum()
    texts = torch.tensor([len(queries), len(documents)], dtype=torch.float64, device=queries.device)
    # [2V + 4]: one message for all figures
    total = sum_of_workers(torch.cat([counts.flatten(), texts, empty]))
    V = queries.shape[1]
    of_query, of_document, (query_texts, document_texts, query_empty, document_empty) = torch.split(total, [V, V, 4])
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
    }


class DeadTerms:
    """Counts the terms that no text of the last steps activated; part of a checkpoint.

    A worker notes its own texts without a message; the workers' notes are joined when they are read.
    """

    def __init__(self, vocabulary_size: int, *, window: int, device: torch.device | str = "cpu") -> None:
        """Begin with no step seen.

        Args:
            vocabulary_size: V.
            window: steps without activation after which a term is dead, 1 or more.
            device: where the vectors lie.
        """
        self._window = window
        self._last = torch.full((vocabulary_size,), -1, dtype=torch.int64, device=device)

    def observe(self, vectors: Tensor, step: int) -> None:
        """Note which terms are active.

        Args:
            vectors: [n, V], this worker's, at least 0.
            step: number of the step, from 0; never smaller than before.
        """
        if len(vectors):
            self._last[vectors.detach().amax(dim=0) > 0] = step

    def count(self, step: int) -> int | None:
        """Terms that no worker's text activated in the last ``window`` steps; every worker has to call it.

        Args:
            step: the step that was observed last.

        Returns:
            None before ``window`` steps have passed.
        """
        if step + 1 < self._window:
            return None
        return int((largest_of_workers(self._last) <= step - self._window).sum())

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps, the same on all workers; every worker has to call it.

        Returns:
            ``last_active``: int64 [V], the last step at which a term was active, -1 for never.
        """
        return {"last_active": largest_of_workers(self._last).cpu().clone()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint, on any number of workers."""
        self._last.copy_(state["last_active"])
