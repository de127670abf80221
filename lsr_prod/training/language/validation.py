"""Validation on held-out texts: the loss with masks as in training, equal in every validation.

Masked words have two more sets (papers/esplade-pretraining, 3.2): in ``firstword`` only the first sub-token of a chosen
word is masked, in ``subword`` only the later ones.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from lsr_prod.config.language import LanguageSettings, PretrainEmlmSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.language.masked_language import MaskedWords
from lsr_prod.training.language.objective import LanguageObjective
from lsr_prod.training.language.objectives import make_objective
from lsr_prod.training_data.training_set import TrainingSet

_TEXTS = 32  # per forward pass
_STEP = -1  # no step of a training has this number, so no mask of a step is repeated


class LanguageValidator:
    """Validator of a language model, in the process of the first worker."""

    def __init__(
        self,
        stage: LanguageSettings,
        data: TrainingSet,
        encoder: SparseEncoder,
        *,
        new_tokens: Sequence[int] = (),
        teacher: Path | None = None,
    ) -> None:
        assert stage.validation is not None
        self._data = data
        rows = np.arange(min(data.rows, stage.validation.texts or data.rows))
        self._rows = rows[np.argsort(data.lengths[rows], kind="stable")]
        self._autocast = stage.scale.precision == "bf16"
        self._sets: dict[str, LanguageObjective] = {
            "": make_objective(stage, encoder, new_tokens=new_tokens, teacher=teacher)
        }
        if isinstance(stage, PretrainEmlmSettings):
            self._sets["firstword/"] = MaskedWords(stage, encoder, masked="first")
            self._sets["subword/"] = MaskedWords(stage, encoder, masked="later")

    @torch.no_grad()
    def __call__(self, encoder: SparseEncoder) -> Mapping[str, float]:
        """Return means over predictions by name: ``masked_tokens``, ``accuracy``, ``firstword/masked_words``, ...

        A set without predictions is left out.
        """
        was_training = encoder.training
        encoder.eval()
        found: dict[str, float] = {}
        for prefix, objective in self._sets.items():
            sums, predicted = self._sums(encoder, objective)
            if predicted:
                names = (*objective.losses, *objective.figures)
                found |= {
                    f"{prefix}{name}": value / predicted for name, value in zip(names, sums.tolist(), strict=True)
                }
        encoder.train(was_training)
        return found

    def _sums(self, encoder: SparseEncoder, objective: LanguageObjective) -> tuple[torch.Tensor, int]:
        device = encoder.model.device
        sums, predicted = torch.zeros(len(objective.losses) + len(objective.figures), dtype=torch.float64), 0
        for start in range(0, len(self._rows), _TEXTS):
            rows = self._rows[start : start + _TEXTS]
            batch = objective.batch(self._data.examples(rows), rows, _STEP)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._autocast):
                _, parts = objective.sums(encoder, *(one.to(device) for one in batch.inputs))
            sums += parts.cpu().to(torch.float64)
            predicted += batch.predicted
        return sums, predicted
