"""The regularizers of an objective, with their weights, ramps and document frequencies."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lsr_prod.config.objective import RegularizerSettings, SparsitySettings
from lsr_prod.terms.casing import cased_terms
from lsr_prod.training.parallel import collective
from lsr_prod.training.regularizers.cased import cased
from lsr_prod.training.regularizers.document_frequency import DocumentFrequency
from lsr_prod.training.regularizers.flops import flops, joint_flops, off_diagonal_joint_flops
from lsr_prod.training.regularizers.l1 import l1
from lsr_prod.training.regularizers.ramp import ramp
from lsr_prod.training.vectors.kept_terms import Vectors, cut

_JOINT = {"all_pairs": joint_flops, "off_diagonal": off_diagonal_joint_flops}


class Regularizers:
    """All regularizers of an objective."""

    def __init__(self, sparsity: SparsitySettings, *, vocabulary: Sequence[str], steps: int) -> None:
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
        self, queries: Vectors, documents: Vectors, shares: collective.Shares, step: int
    ) -> list[tuple[str, Tensor, float]]:
        """Return the name, the value for the global batch and the weight at a step of every regularizer.

        The name of a second regularizer of the same kind contains its number: ``flops_2_document``.
        """
        query_texts, document_texts = sum(shares.queries), shares.texts
        found = []
        kinds: list[str] = []
        for i, settings in enumerate(self._sparsity.regularizers):
            kind = settings.regularizer
            name = f"{kind}_{i + 1}" if kind in kinds else kind
            kinds.append(kind)
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

    def _value(self, i: int, settings: RegularizerSettings, rows: Vectors, texts: int) -> Tensor:
        device = _device(rows)
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
        return {
            f"{name}.{key}": value
            for name, frequencies in self._frequencies.items()
            for key, value in frequencies.state().items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore ``state()`` of the same settings."""
        for name, frequencies in self._frequencies.items():
            own = {key: value for key, value in state.items() if key.startswith(f"{name}.")}
            frequencies.load_state({key.removeprefix(f"{name}."): value for key, value in own.items()})


def _device(rows: Vectors) -> torch.device:
    return (rows if isinstance(rows, Tensor) else rows.weights).device
