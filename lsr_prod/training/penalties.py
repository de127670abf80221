"""The regularisers of an objective, with their ramps and the document frequencies that some of them look at."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lsr_prod.config.objective import RegularizerSettings, SparsitySettings
from lsr_prod.terms.casing import cased_terms
from lsr_prod.training import collective, regularizers, schedules
from lsr_prod.training.document_frequency import DocumentFrequency
from lsr_prod.training.kept_terms import Vectors, cut

__all__ = ["Penalties"]


class Penalties:
    """All regularisers of an objective.

    Args:
        sparsity: which, and the masks that documents go through before their terms are counted.
        vocabulary: the V output terms.
        steps: of the whole stage, which ramps are shares of.
    """

    def __init__(self, sparsity: SparsitySettings, *, vocabulary: Sequence[str], steps: int) -> None:
        self._sparsity, self._steps = sparsity, steps
        self._frequencies = {
            f"df_flops.{i}": DocumentFrequency(
                len(vocabulary), alpha=penalty.df_alpha, beta=penalty.df_beta, every=penalty.df_every
            )
            for i, penalty in enumerate(sparsity.regularizers)
            if penalty.regularizer == "df_flops"
        }
        is_cased = any(penalty.regularizer == "cased" for penalty in sparsity.regularizers)
        self._is_cased = torch.tensor(cased_terms(vocabulary) if is_cased else [], dtype=torch.bool)

    def values(
        self, queries: Vectors, documents: Vectors, shares: collective.Shares, step: int
    ) -> list[tuple[str, Tensor, float]]:
        """Every regulariser's name, its value for the global batch and its weight at a step.

        A second regulariser of one kind has its place in the list in its name: ``flops_2_document``.

        Args:
            queries: this worker's.
            documents: this worker's.
            shares: how the batch is shared, which says how many texts the means are over.
            step: from 0.
        """
        query_texts, document_texts = sum(shares.queries), sum(shares.documents)
        found = []
        kinds: list[str] = []
        for i, penalty in enumerate(self._sparsity.regularizers):
            kind = penalty.regularizer
            name = f"{kind}_{i + 1}" if kind in kinds else kind
            kinds.append(kind)
            factor = schedules.ramp(penalty, step, self._steps)
            if kind == "joint_flops":
                value = regularizers.joint_flops(
                    queries, documents, query_texts=query_texts, document_texts=document_texts
                )
                found.append((name, value, penalty.joint * factor))
            if penalty.query:
                value = self._value(i, penalty, queries, query_texts)
                found.append((f"{name}_query", value, penalty.query * factor))
            if penalty.document:
                value = self._value(i, penalty, documents, document_texts)
                found.append((f"{name}_document", value, penalty.document * factor))
        return found

    def _value(self, i: int, penalty: RegularizerSettings, rows: Vectors, texts: int) -> Tensor:
        device = _device(rows)
        if penalty.regularizer == "l1":
            return regularizers.l1(rows, texts, l0_mask=penalty.l0_mask)
        if penalty.regularizer == "cased":
            self._is_cased = self._is_cased.to(device)
            return regularizers.cased(rows, self._is_cased)
        frequencies = self._frequencies.get(f"df_flops.{i}")
        factors = None if frequencies is None else frequencies.weights(device)
        return regularizers.flops(rows, texts, l0_mask=penalty.l0_mask, term_weights=factors)

    def observe(self, documents: Tensor, step: int) -> None:
        """Count the terms of a step's documents, as the regularisers see them.

        Args:
            documents: this worker's, [m, V]; all workers call it together.
            step: from 0, never falling.
        """
        if not self._frequencies:
            return
        seen = cut(documents.detach(), self._sparsity.keep_document if self._sparsity.keep == "masked" else None)
        for frequencies in self._frequencies.values():
            frequencies.observe(seen, step)

    def state(self) -> dict[str, Tensor]:
        """The document frequencies, on the CPU."""
        return {
            f"{name}.{key}": value
            for name, frequencies in self._frequencies.items()
            for key, value in frequencies.state().items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()`` of the same settings."""
        for name, frequencies in self._frequencies.items():
            own = {key: value for key, value in state.items() if key.startswith(f"{name}.")}
            frequencies.load_state({key.removeprefix(f"{name}."): value for key, value in own.items()})


def _device(rows: Vectors) -> torch.device:
    return (rows if isinstance(rows, Tensor) else rows.weights).device
