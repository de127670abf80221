"""Job of the training processes: settings and artifacts, and the trainer and validator that a worker makes of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray.train

from lsr_prod.config import language, training
from lsr_prod.evaluation.validation import Validator
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import Store, artifacts, is_remote
from lsr_prod.storage.formats.digests import FileDigest
from lsr_prod.training import process_group, query_weights, regularizers, stage_trainer
from lsr_prod.training.data.training_set import TrainingSet
from lsr_prod.training.language.trainer import LanguageTrainer, LanguageValidator, make_objective
from lsr_prod.training.retrieval.trainer import Trainer


@dataclass(frozen=True, slots=True)
class StageRun:
    """Model and folders of one run of a stage."""

    train: training.TrainSettings  # the section ``train``
    start: str  # digest of the model to start from, which lies in the work store as ``models/<start>``
    name: str  # digest of the stage; its checkpoints lie under ``runs/<name>``
    output: Path  # the new model directory
    options: dict[str, str]  # options of the object store

    @property
    def work(self) -> Store:
        """The work store."""
        return Store(self.train.work, self.options)


@dataclass(frozen=True, slots=True)
class LoopInputs:
    """Inputs of a training loop in the work store."""

    training_set: str  # digest of the training set
    further_sets: tuple[str, ...] = ()  # digests of the other training sets of a fine-tuning with several, in order
    validation_set: str | None = None  # digest of the validation texts of a language model
    new_tokens: tuple[int, ...] = field(default=(), repr=False)  # for ``adapt_mlm``, tokens that are masked more often
    teacher: str | None = None  # for ``distil_head``, digest of the teacher's model directory
    # document frequencies of terms, if queries are weighted by IDF or learned weights start from it
    term_counts: FileDigest | None = None


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """Job of every worker; all paths are absolute, as each Ray worker has a working directory of its own."""

    stage: training.LoopSettings  # the settings
    run: StageRun  # model and work store
    inputs: LoopInputs  # further inputs in the work store
    progress: Any  # actor that shows the progress
    unlisted: ray.train.Checkpoint | None  # checkpoint to resume from if Ray Train lists none

    @property
    def threads(self) -> int:
        """CPU threads per process."""
        return max(1, int(self.run.train.cpus_per_worker or 1))

    @property
    def reports(self) -> Path | None:
        """Local folder of the reports; None: reports are kept in checkpoints only."""
        work = self.run.work
        return None if is_remote(work.uri) else Path(work.location) / "runs" / self.run.name


def with_absolute_paths(stage: training.LoopSettings) -> training.LoopSettings:
    """Return settings that do not depend on the working directory."""
    changes: dict[str, Any] = {}
    if stage.watch.tensorboard is not None:
        changes["watch"] = stage.watch.model_copy(update={"tensorboard": _absolute(stage.watch.tensorboard)})
    if isinstance(stage, training.FinetuneSettings) and stage.validation is not None:
        paths = {field: _absolute(getattr(stage.validation, field)) for field in ("corpus", "queries", "qrels")}
        changes["validation"] = stage.validation.model_copy(update=paths)
    return stage.model_copy(update=changes)


def _absolute(path: str) -> str:
    return path if is_remote(path) or "://" in path else str(Path(path).absolute())


def load_start(folder: Path, stage: training.LoopSettings) -> SparseEncoder:
    """Load the encoder that a stage starts from, with the maximum lengths of the card that the stage writes."""
    if isinstance(stage, language.LanguageSettings):  # max_length limits its texts, not the encoder
        return SparseEncoder.load(folder)
    return SparseEncoder.load(folder, **card_lengths(stage))


def card_lengths(stage: training.FinetuneSettings) -> dict[str, int]:
    """Return the maximum lengths that a stage changes in the encoder card."""
    lengths = {
        "query_max_length": stage.card_query_max_length or stage.query_max_length,
        "document_max_length": stage.card_document_max_length or stage.document_max_length,
    }
    return {name: value for name, value in lengths.items() if value is not None}


def make_trainer(
    stage: training.LoopSettings, encoder: SparseEncoder, work: Store, inputs: LoopInputs, group: process_group.Group
) -> stage_trainer.StageTrainer:
    """Create the trainer of a stage, at step 0."""
    data = TrainingSet.open(work, inputs.training_set)
    if isinstance(stage, training.FinetuneSettings):
        weights = query_weights.initial_weights(encoder, inputs.term_counts, work)
        further = [TrainingSet.open(work, digest) for digest in inputs.further_sets]
        return Trainer(encoder, [data, *further], stage, group, query_weights=weights)
    teacher = None if inputs.teacher is None else artifacts.fetch_artifact(work, f"models/{inputs.teacher}")
    objective = make_objective(stage, encoder, new_tokens=inputs.new_tokens, teacher=teacher)
    return LanguageTrainer(encoder, data, stage, group, objective)


def ramps_end(stage: training.LoopSettings, steps: int) -> int:
    """Return the first step at which all regularizers have their full weights."""
    if isinstance(stage, language.LanguageSettings):
        return 0
    return max((regularizers.ramp_end(one, steps) for one in stage.objective.sparsity.regularizers), default=0)


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Result of one validation."""

    measures: dict[str, float]  # measures by name; ``validation.keep_best`` names one of them
    others: dict[str, float]  # further reported figures by name


def make_validator(
    stage: training.LoopSettings, encoder: SparseEncoder, work: Store, inputs: LoopInputs, scratch: Path
) -> Callable[[SparseEncoder], ValidationResult] | None:
    """Return a function that validates an encoder; None: the stage has no validation."""
    if stage.validation is None:
        return None
    if isinstance(stage, language.LanguageSettings):
        assert inputs.validation_set is not None
        teacher = None if inputs.teacher is None else artifacts.fetch_artifact(work, f"models/{inputs.teacher}")
        texts = LanguageValidator(
            stage, TrainingSet.open(work, inputs.validation_set), encoder, new_tokens=inputs.new_tokens, teacher=teacher
        )
        return lambda one: ValidationResult({}, dict(texts(one)))
    collection = Validator(stage.validation, scratch, work.options)
    weighed = query_weights.query_weighing(encoder, collection.collection.documents.values())

    def validate(one: SparseEncoder) -> ValidationResult:
        found = collection(weighed(one))
        others = {name: getattr(found, name) for name in ("l0_query", "l0_document", "flops")}
        return ValidationResult(dict(found.measures), others)

    return validate
