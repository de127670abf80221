"""Distillation of a teacher's sparse vectors (vocabulary-transfer, 6.3)."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from lsr_prod.config.language import DistilHeadSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batches import pad
from lsr_prod.training.language.objective import LanguageBatch, Rows, padding
from lsr_prod.training_data.training_set import Example


class TeacherVectors:
    """Distance to a teacher's sparse vectors (vocabulary-transfer, 6.3); the paper leaves the distance open."""

    losses: tuple[str, ...] = ("distance",)
    figures: tuple[str, ...] = ("l0_document", "l0_teacher")
    pools = True

    def __init__(self, stage: DistilHeadSettings, encoder: SparseEncoder, teacher: Path) -> None:
        """Load the teacher; it is not trained."""
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
