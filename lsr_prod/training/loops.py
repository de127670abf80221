"""The two kinds of training loops, for retrieval and of language models, as the worker sees them: one interface."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torch import Tensor

from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.train import FinetuneSettings
from lsr_prod.evaluation.validation import Validator
from lsr_prod.formats.digest import FileDigest
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import Store
from lsr_prod.storage.folders import fetch_folder
from lsr_prod.training.language_objectives import make_objective
from lsr_prod.training.language_trainer import LanguageTrainer, prepare_language
from lsr_prod.training.language_validation import LanguageValidator
from lsr_prod.training.process_group import Group
from lsr_prod.training.query_weights import idf_encoder, query_weights
from lsr_prod.training.schedules import ramp_end
from lsr_prod.training.throughput import ThroughputMeter
from lsr_prod.training.trainer import Trainer, prepare_encoder
from lsr_prod.training_data.training_set import TrainingSet

__all__ = [
    "Judged",
    "LoopInputs",
    "LoopSettings",
    "StageTrainer",
    "StepOutcome",
    "load_start",
    "make_trainer",
    "make_validator",
    "prepare_start",
    "ramps_end",
]

LoopSettings = FinetuneSettings | LanguageSettings
"""The settings of a stage with a training loop."""


@dataclass(frozen=True, slots=True)
class LoopInputs:
    """What a loop reads from the work store.

    Attributes:
        training_set: digest of the data.
        validation_set: digest of the texts that a language model is validated with.
        new_tokens: of ``adapt_mlm``, tokens that are masked more often.
        teacher: of ``distil_head``, digest of the teacher's model directory.
        term_counts: of a fine-tuning whose queries have no model, what weighs them.
    """

    training_set: str
    validation_set: str | None = None
    new_tokens: tuple[int, ...] = field(default=(), repr=False)
    teacher: str | None = None
    term_counts: FileDigest | None = None


class StepOutcome(Protocol):
    """What a step did.

    Attributes:
        losses: terms of the loss of the global batch, by name, and their sum, ``total``.
        grad_norm: of all gradients together, before they are scaled down.
        learning_rate: of this step.
    """

    @property
    def losses(self) -> dict[str, float]: ...  # noqa: D102
    @property
    def grad_norm(self) -> float: ...  # noqa: D102
    @property
    def learning_rate(self) -> float: ...  # noqa: D102

    def figures(self) -> Mapping[str, float]:
        """What else is reported of the step; every worker has to call it."""

    def count(self, meter: ThroughputMeter) -> None:
        """Count the work of the step."""


class StageTrainer(Protocol):
    """The training of a stage by one worker, at some step.

    Attributes:
        step: steps that are done.
        steps: steps of the stage.
        encoder: the module; its parameters may be shards.
    """

    step: int
    steps: int
    encoder: SparseEncoder

    def train_step(self) -> StepOutcome:
        """Do the next step."""

    def figures(self) -> Mapping[str, float | None]:
        """What is reported of all steps so far; every worker has to call it."""

    @property
    def sharded(self) -> bool:
        """Whether each worker holds a part of the weights only."""

    def weights(self, keep: bool) -> dict[str, Tensor]:
        """The trained parameters, whole and on the CPU, for workers that want to ``keep`` them; all have to ask."""

    def tensors(self, keep: bool) -> dict[str, dict[str, Tensor]]:
        """All that a checkpoint keeps, by part; every worker has to ask at the same time."""

    def load(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Go on from what ``tensors`` gave after ``step`` steps."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a validation found.

    Attributes:
        measures: by name, of which one may be what the best weights are chosen by.
        others: what is reported beside them.
    """

    measures: dict[str, float]
    others: dict[str, float]


def load_start(folder: Path, stage: LoopSettings) -> SparseEncoder:
    """The encoder that a stage starts from, with the lengths that the stage asks for."""
    if isinstance(stage, LanguageSettings):  # its length is that of its texts, not of the encoder
        return SparseEncoder.load(folder)
    lengths = {"query_max_length": stage.query_max_length, "document_max_length": stage.document_max_length}
    return SparseEncoder.load(folder, **{name: value for name, value in lengths.items() if value is not None})


def prepare_start(encoder: SparseEncoder, stage: LoopSettings) -> None:
    """Change an encoder in place into the one whose parameters the stage trains; a trainer does it itself."""
    if isinstance(stage, LanguageSettings):
        prepare_language(encoder, stage)
    else:
        prepare_encoder(encoder, stage)


def make_trainer(
    stage: LoopSettings, encoder: SparseEncoder, work: Store, inputs: LoopInputs, group: Group
) -> StageTrainer:
    """The trainer of a stage, at step 0."""
    data = TrainingSet.open(work, inputs.training_set)
    if isinstance(stage, FinetuneSettings):
        counts = inputs.term_counts
        weights = None if counts is None else query_weights(counts, work, encoder.card.vocabulary_size)
        return Trainer(encoder, data, stage, group, query_weights=weights)
    teacher = None if inputs.teacher is None else fetch_folder(work, f"models/{inputs.teacher}")
    objective = make_objective(stage, encoder, new_tokens=inputs.new_tokens, teacher=teacher)
    return LanguageTrainer(encoder, data, stage, group, objective)


def make_validator(
    stage: LoopSettings, encoder: SparseEncoder, work: Store, inputs: LoopInputs, scratch: Path
) -> Callable[[SparseEncoder], Judged] | None:
    """What judges the encoder while it is trained; None: the stage asks for nothing."""
    if stage.validation is None:
        return None
    if isinstance(stage, LanguageSettings):
        assert inputs.validation_set is not None
        teacher = None if inputs.teacher is None else fetch_folder(work, f"models/{inputs.teacher}")
        texts = LanguageValidator(
            stage, TrainingSet.open(work, inputs.validation_set), encoder, new_tokens=inputs.new_tokens, teacher=teacher
        )
        return lambda one: Judged({}, dict(texts(one)))
    collection = Validator(stage.validation, scratch)
    weighed = None
    if encoder.card.query_encoder == "idf":
        weighed = idf_encoder(encoder, collection.collection.documents.values())

    def judge(one: SparseEncoder) -> Judged:
        found = collection(one.encode if weighed is None else weighed(one))
        return Judged(
            dict(found.measures),
            {"l0_query": found.l0_query, "l0_document": found.l0_document, "flops": found.flops},
        )

    return judge


def ramps_end(stage: LoopSettings, steps: int) -> int:
    """The first step at which all regularisers have their whole weights."""
    if isinstance(stage, LanguageSettings):
        return 0
    return max((ramp_end(one, steps) for one in stage.objective.sparsity.regularizers), default=0)
