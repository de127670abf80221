"""Training on plain text by one worker: steps from batch to weights, validation, and the objectives.

Validation computes the loss on held-out texts, with masks as in training that are equal in every validation. Masked
words have two more sets (papers/esplade-pretraining, 3.2): in ``firstword`` only the first sub-token of a chosen word
is masked, in ``subword`` only the later ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lsr_prod.config import AdaptCausalSettings, AdaptMlmSettings, DistilHeadSettings, PretrainEmlmSettings
from lsr_prod.config.language import LanguageSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training import batch_sampler, batches, encoder_setup, replica, stage_trainer, twins
from lsr_prod.training.data.training_set import Example, TrainingSet
from lsr_prod.training.language.masked_language import MaskedTokens, MaskedWords
from lsr_prod.training.language.objective import (
    LanguageBatch,
    LanguageModule,
    LanguageObjective,
    Rows,
    padding,
    token_sums,
)
from lsr_prod.training.observers.throughput import ThroughputMeter
from lsr_prod.training.process_group import Group, sum_of_workers

_TEXTS = 32  # held-out texts per forward pass
_STEP = -1  # no step of a training has this number, so no mask of a step is repeated


@dataclass(frozen=True, slots=True)
class LanguageStep:
    """Result of one step."""

    losses: dict[str, float]  # the loss of the global batch, ``total``, and its terms by name
    grad_norm: float  # norm of all gradients together, before clipping
    learning_rate: float  # learning rate of this step
    others: dict[str, float]  # further reported figures, means over predictions
    texts: int  # texts of this worker
    tokens: int  # tokens of these texts, padding excluded
    predicted: int | None  # tokens of this worker with logits; None: the objective computes vectors
    active: int  # (text, term) pairs of this worker's vectors with a weight above 0

    def figures(self) -> dict[str, float]:
        """Return the figures other than the loss."""
        return self.others

    def count(self, meter: ThroughputMeter) -> None:
        """Add the work of this step to the meter."""
        meter.count(documents=self.texts, tokens=self.tokens, active=self.active, predicted=self.predicted)


class LanguageTrainer(stage_trainer.StageTrainer):
    """Trainer of a stage on plain text on one worker."""

    def __init__(
        self,
        encoder: SparseEncoder,
        data: TrainingSet,
        settings: LanguageSettings,
        group: Group,
        objective: LanguageObjective,
    ) -> None:
        super().__init__(encoder, settings, group, data.rows)
        self._settings, self._data, self._objective = settings, data, objective
        self._replica = replica.Replica(
            encoder, settings.scale.strategy, group, around=lambda one: LanguageModule(one, objective)
        )  # fmt: skip
        self.encoder = encoder.train()
        self._optimizer = replica.OptimizerStep(encoder.model, settings.optimizer)
        lengths = data.lengths if settings.batch.group_by_length else None
        self._sampler = batch_sampler.BatchSampler(data.rows, settings.batch.texts, settings.seed, lengths)

    def train_step(self) -> LanguageStep:
        """Run the next step: batch, forward and backward pass, optimizer."""
        rate = self._optimizer.begin(self.step, self.steps)
        parts = [
            self._objective.batch(self._data.examples(rows), rows, self.step)
            for rows in self._sampler.worker_rows(self.step, self._settings.batch.accumulate, self._group)
        ]
        predicted = sum(part.predicted for part in parts)
        all_predicted = max(1, int(sum_of_workers(torch.tensor(predicted))))
        sums = torch.stack([self._backward(parts, number, all_predicted) for number in range(len(parts))]).sum(dim=0)
        norm = self._optimizer.apply()
        self.step += 1
        means, losses = (sum_of_workers(sums) / all_predicted).tolist(), ("total", *self._objective.losses)
        return LanguageStep(
            losses=dict(zip(losses, means, strict=False)),
            grad_norm=float(norm),
            learning_rate=rate,
            others=dict(zip(self._objective.figures, means[len(losses) :], strict=True)),
            texts=sum(part.texts for part in parts),
            tokens=sum(part.tokens for part in parts),
            predicted=None if self._objective.pools else predicted,
            active=int(sums[len(losses)]) if self._objective.pools else 0,
        )

    def _backward(self, parts: list[LanguageBatch], number: int, all_predicted: int) -> torch.Tensor:
        """Add the gradient of a part; return the sums of its loss, terms and figures."""
        device, part, last = self._group.device, parts[number], number == len(parts) - 1
        twins.seed_torch(self._settings.seed, self.step, self._group.rank, number)
        with self._replica.synchronized(last=last):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.bf16):
                total, sums = self._replica.run(*(one.to(device, non_blocking=True) for one in part.inputs))
            # The gradients of workers are averaged, not added.
            torch.autograd.backward(total * (self._group.world / all_predicted))
        return torch.cat([total.detach()[None], sums]).to(torch.float64)


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
        self._bf16 = encoder_setup.uses_bf16(encoder, stage.scale, encoder.model.device)
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
        texts = batches.pad([example.documents[0] for example in examples], self._pad)
        ids, mask = texts.input_ids, texts.attention_mask
        has_next = torch.zeros_like(mask)
        has_next[:, :-1] = mask[:, 1:]
        places = has_next.flatten().nonzero()[:, 0]
        return LanguageBatch((ids, mask, places, ids.flatten()[places + 1]), len(places), len(ids), int(mask.sum()))

    def sums(self, encoder: SparseEncoder, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
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
        texts = batches.pad([example.documents[0] for example in examples], self._pad)
        teacher_texts = batches.pad([example.query for example in examples], self._teacher_pad)
        inputs = (texts.input_ids, texts.attention_mask, teacher_texts.input_ids, teacher_texts.attention_mask)
        return LanguageBatch(inputs, len(examples), len(examples), int(texts.attention_mask.sum()))

    def sums(self, encoder: SparseEncoder, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum of the distances of vectors, and the active terms of both."""
        ids, mask, teacher_ids, teacher_mask = inputs
        with torch.no_grad():
            target = self._teacher.to(ids.device)(teacher_ids, teacher_mask)  # [B, V]
        vectors = encoder(ids, mask)
        if self._loss == "mse":
            total = (vectors - target).square().sum()
        else:
            total = (1 - torch.nn.functional.cosine_similarity(vectors, target, dim=1)).sum()
        active = [torch.count_nonzero(one).to(total.dtype) for one in (vectors, target)]
        return total, torch.stack([total.detach(), *active])
