"""The objectives on plain text by the settings of their stages.

Validation on held-out texts: the loss with masks as in training, equal in every validation.

Masked words have two more sets (papers/esplade-pretraining, 3.2): in ``firstword`` only the first sub-token of a chosen
word is masked, in ``subword`` only the later ones.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from lsr_prod.config import AdaptCausalSettings, AdaptMlmSettings, DistilHeadSettings, PretrainEmlmSettings
from lsr_prod.config.language import LanguageSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batches import pad
from lsr_prod.training.data.training_set import Example, TrainingSet
from lsr_prod.training.encoder_setup import uses_bf16
from lsr_prod.training.language.masked_language import MaskedTokens, MaskedWords
from lsr_prod.training.language.objective import LanguageBatch, LanguageObjective, Rows, padding, token_sums


def make_objective(
    stage: LanguageSettings, encoder: SparseEncoder, *, new_tokens: Sequence[int] = (), teacher: Path | None = None
) -> LanguageObjective:
    """Create the objective of a stage."""
    match stage:
        case AdaptMlmSettings():
            return MaskedTokens(stage, encoder, new_tokens)
        case PretrainEmlmSettings():
            return MaskedWords(stage, encoder)
        case AdaptCausalSettings():
            return NextTokens(stage, encoder)
        case DistilHeadSettings():
            assert teacher is not None
            return TeacherVectors(stage, encoder, teacher)
        case _:
            raise TypeError(f"{type(stage).__name__} has no objective on plain text")


class NextTokens:
    """Next-token prediction with logits and with their activations (papers/csplade, 3.2)."""

    losses: tuple[str, ...] = ("next_token", "activated_next_token")
    figures: tuple[str, ...] = ("accuracy",)
    pools = False

    def __init__(self, stage: AdaptCausalSettings, encoder: SparseEncoder) -> None:
        self._relu_weight, self._pad = stage.relu_weight, padding(encoder)

    def batch(self, examples: Sequence[Example], _rows: Rows, _step: int, /) -> LanguageBatch:
        """Return blocks of text; the label of a token is the next token."""
        texts = pad([example.documents[0] for example in examples], self._pad)
        ids, mask = texts.input_ids, texts.attention_mask
        has_next = torch.zeros_like(mask)
        has_next[:, :-1] = mask[:, 1:]
        places = has_next.flatten().nonzero()[:, 0]
        labels = ids.flatten()[places + 1]
        return LanguageBatch((ids, mask, places, labels), len(places), len(ids), int(mask.sum()))

    def sums(self, encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return both cross entropies, and the number of tokens predicted correctly."""
        return token_sums(encoder, *inputs, attention="causal", relu_weight=self._relu_weight)


class TeacherVectors:
    """Distance to a teacher's sparse vectors (vocabulary-transfer, 6.3); the paper leaves the distance open."""

    losses: tuple[str, ...] = ("distance",)
    figures: tuple[str, ...] = ("l0_document", "l0_teacher")
    pools = True

    def __init__(self, stage: DistilHeadSettings, encoder: SparseEncoder, teacher: Path) -> None:
        self._loss, self._pad = stage.loss, padding(encoder)
        self._teacher = SparseEncoder.load(teacher).requires_grad_(requires_grad=False).eval()
        self._teacher_pad = padding(self._teacher)

    def batch(self, examples: Sequence[Example], _rows: Rows, _step: int, /) -> LanguageBatch:
        """Return texts tokenized for the model and for the teacher."""
        texts = pad([example.documents[0] for example in examples], self._pad)
        teacher_texts = pad([example.query for example in examples], self._teacher_pad)
        inputs = (texts.input_ids, texts.attention_mask, teacher_texts.input_ids, teacher_texts.attention_mask)
        return LanguageBatch(inputs, len(examples), len(examples), int(texts.attention_mask.sum()))

    def sums(self, encoder: SparseEncoder, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of the distances of vectors, and the active terms of both."""
        ids, mask, teacher_ids, teacher_mask = inputs
        with torch.no_grad():
            target = self._teacher.to(ids.device)(teacher_ids, teacher_mask)  # [B, V]
        vectors = encoder(ids, mask)
        if self._loss == "mse":
            total = (vectors - target).square().sum()
        else:
            total = (1 - nn.functional.cosine_similarity(vectors, target, dim=1)).sum()
        active = [torch.count_nonzero(one).to(total.dtype) for one in (vectors, target)]
        return total, torch.stack([total.detach(), *active])


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
        self._bf16 = uses_bf16(encoder, stage.scale, encoder.model.device)
        whole = make_objective(stage, encoder, new_tokens=new_tokens, teacher=teacher)
        self._sets: dict[str, LanguageObjective] = {"": whole}
        if isinstance(stage, PretrainEmlmSettings):
            self._sets["firstword/"] = MaskedWords(stage, encoder, masked="first")
            self._sets["subword/"] = MaskedWords(stage, encoder, masked="later")

    @torch.no_grad()
    def __call__(self, encoder: SparseEncoder) -> Mapping[str, float]:
        """Return means over predictions by name: ``masked_tokens``, ``accuracy``, ``firstword/masked_words``, ..."""
        was_training = encoder.training
        encoder.eval()
        found: dict[str, float] = {}
        for prefix, objective in self._sets.items():
            sums, predicted = self._sums(encoder, objective)
            if predicted:
                names = (f"{prefix}{name}" for name in (*objective.losses, *objective.figures))
                found |= dict(zip(names, (sums / predicted).tolist(), strict=True))
        encoder.train(was_training)
        return found

    def _sums(self, encoder: SparseEncoder, objective: LanguageObjective) -> tuple[torch.Tensor, int]:
        device = encoder.model.device
        sums, predicted = torch.zeros(len(objective.losses) + len(objective.figures), dtype=torch.float64), 0
        for start in range(0, len(self._rows), _TEXTS):
            rows = self._rows[start : start + _TEXTS]
            batch = objective.batch(self._data.examples(rows), rows, _STEP)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._bf16):
                _, parts = objective.sums(encoder, *(one.to(device) for one in batch.inputs))
            sums += parts.cpu().to(torch.float64)
            predicted += batch.predicted
        return sums, predicted
