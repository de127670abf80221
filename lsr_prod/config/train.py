"""Settings of training: a chain of stages, each from a model directory to a model directory."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from lsr_prod.config.encoder import AdaptEncoderSettings
from lsr_prod.config.language import AdaptCausalSettings, AdaptMlmSettings, DistilHeadSettings, PretrainEmlmSettings
from lsr_prod.config.location import Location
from lsr_prod.config.objective import ObjectiveSettings
from lsr_prod.config.optimization import LoraSettings, OptimizerSettings, ScaleSettings, WatchSettings
from lsr_prod.config.query_weights import QueryWeightsSettings
from lsr_prod.config.section import Section
from lsr_prod.config.training_data import BatchSettings, TrainingDataSettings
from lsr_prod.config.vocabulary import VocabularySettings

__all__ = [
    "STAGES",
    "FinetuneSettings",
    "LoraSettings",
    "OptimizerSettings",
    "ScaleSettings",
    "StageSettings",
    "TrainSettings",
    "ValidationSettings",
    "WatchSettings",
]


class ValidationSettings(Section):
    """Validation during training, with an index of a collection."""

    corpus: Location = Field(min_length=1, description="file or URI, JSONL of the documents: _id, title, text (BEIR)")
    queries: Location = Field(min_length=1, description="file or URI, JSONL of the queries: _id, text (BEIR)")
    qrels: Location = Field(
        min_length=1, description="file or URI, relevance judgments: query, document, grade, tab-separated (BEIR)"
    )
    every: int = Field(1000, ge=1, description="steps between two validations; the last one is after the last step")
    documents: int | None = Field(
        None, ge=1, description="maximum number of documents: those with judgments first, then others; default: all"
    )
    max_queries: int | None = Field(None, ge=1, description="maximum number of queries; default: all with judgments")
    measures: list[str] = Field(
        ["RR@10", "R@10", "R@100"], min_length=1, description="measures, as named by ir_measures"
    )
    overlap_threshold: float = Field(0.0, ge=0, le=1, description="overlap threshold of the searches")
    qk: int = Field(0, ge=0, description="maximum terms of a query, heaviest first; 0: all")
    dk: int = Field(0, ge=0, description="maximum terms of a document, heaviest first; 0: all")
    keep_best: str | None = Field(
        None, description="keep the weights with the best value of this measure; default: keep the last weights"
    )

    @model_validator(mode="after")
    def _measured(self) -> "ValidationSettings":
        if self.keep_best is not None and self.keep_best not in self.measures:
            raise ValueError(f"keep_best has to be one of the measures, {', '.join(self.measures)}")
        return self


class FinetuneSettings(Section):
    """Stage that fine-tunes an encoder for retrieval."""

    stage: Literal["finetune"] = Field("finetune", description="kind of the stage")
    data: TrainingDataSettings = Field(description="training rows")
    batch: BatchSettings = Field(BatchSettings(), description="batch of one step")
    steps: int | None = Field(None, ge=1, description="number of steps; give this or epochs")
    epochs: float | None = Field(None, gt=0, allow_inf_nan=False, description="number of passes over the data")
    objective: ObjectiveSettings = Field(description="losses and regularizers")
    optimizer: OptimizerSettings = Field(OptimizerSettings(), description="AdamW and its learning rate")
    scale: ScaleSettings = Field(ScaleSettings(), description="distribution over workers, precision and memory")
    validation: ValidationSettings | None = Field(None, description="validation during training, with an index")
    watch: WatchSettings = Field(WatchSettings(), description="reports and early stopping")
    checkpoint_every: int = Field(500, ge=1, description="steps between two checkpoints")
    query_max_length: int | None = Field(
        None, ge=3, description="maximum tokens of a query; default: from the encoder card"
    )
    document_max_length: int | None = Field(
        None, ge=3, description="maximum tokens of a document; default: from the encoder card"
    )
    dropout: float | None = Field(None, ge=0, lt=1, description="dropout of the model; default: from its config")
    idf_corpus: TrainingDataSettings | None = Field(
        None,
        description="texts that the IDF weights of inference-free queries are counted on, kind texts; default: "
        "the documents of data, each once",
    )
    query_weights: QueryWeightsSettings | None = Field(
        None, description="training of the query weights of a model with query_encoder learned; default: its defaults"
    )
    seed: int = Field(0, ge=0, description="seed of order, dropout and sampled negatives")

    @model_validator(mode="after")
    def _consistent(self) -> "FinetuneSettings":
        if self.idf_corpus is not None and self.idf_corpus.kind != "texts":
            raise ValueError("idf_corpus has documents; its kind has to be texts")
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give steps or epochs, one of the two")
        if self.data.kind == "texts":
            raise ValueError("fine-tuning needs queries and documents; data.kind cannot be texts")
        if self.batch.accumulate > 1 and any(
            one.regularizer == "cased" for one in self.objective.sparsity.regularizers
        ):
            raise ValueError("cased is a sum over the whole batch, which batch.accumulate splits; use batch.chunk")
        losses = {loss.loss for loss in self.objective.losses}
        if losses & {"margin_mse", "kl"} and self.data.kind != "scores":
            raise ValueError("margin_mse and kl need data.kind scores, from a teacher")
        if self.batch.negatives and self.data.kind == "pairs":
            raise ValueError("rows of kind pairs have no negatives; set batch.negatives to 0")
        if losses & {"margin_mse", "kl"} and not self.batch.negatives:
            raise ValueError("margin_mse and kl need batch.negatives of 1 or more")
        if any(loss.loss == "info_nce" and not loss.in_batch for loss in self.objective.losses) and (
            not self.batch.negatives
        ):
            raise ValueError("info_nce without in_batch needs batch.negatives")
        if self.objective.queue is not None and self.scale.strategy == "fsdp":
            raise ValueError("the momentum copy of a queue needs scale.strategy ddp")
        return self


StageSettings = (
    FinetuneSettings
    | AdaptMlmSettings
    | PretrainEmlmSettings
    | AdaptCausalSettings
    | DistilHeadSettings
    | VocabularySettings
    | AdaptEncoderSettings
)
"""Settings of a stage of any kind."""

STAGES: dict[str, type[Section]] = {
    get_args(kind.model_fields["stage"].annotation)[0]: kind for kind in get_args(StageSettings)
}
"""Kind of a stage -> its settings."""


class TrainSettings(Section):
    """Training by a chain of stages."""

    model: Location = Field(min_length=1, description="folder or URI of a model to start from, or a Hugging Face id")
    output: Location = Field(
        min_length=1, description="folder or URI of the trained model; must not exist, or hold the same one"
    )
    work: Location = Field(
        min_length=1,
        description="folder or URI that all workers can access, for training sets, checkpoints, logs and "
        "intermediate models; finished ones are reused",
    )
    stages: list[Annotated[StageSettings, Field(discriminator="stage")]] = Field(
        min_length=1, description="stages, in order"
    )
    workers: int = Field(1, ge=1, description="number of training processes; with min_workers, the maximum")
    min_workers: int | None = Field(
        None,
        ge=1,
        description="minimum number of workers to continue with when machines are lost; default: wait for all workers",
    )
    use_gpu: bool = Field(False, description="use one GPU per worker")
    cpus_per_worker: float = Field(1, gt=0, description="cores per worker; on a CPU also its threads")
    max_failures: int = Field(
        10, ge=-1, description="number of times that lost workers are replaced before the job fails; -1: no limit"
    )

    @field_validator("stages", mode="before")
    @classmethod
    def _named(cls, stages: Any) -> Any:
        """A stage without a kind is ``finetune``."""
        if not isinstance(stages, list):
            return stages
        return [{"stage": "finetune", **stage} if isinstance(stage, dict) else stage for stage in stages]

    @model_validator(mode="after")
    def _elastic(self) -> "TrainSettings":
        if self.min_workers is not None and self.min_workers > self.workers:
            raise ValueError("min_workers is more than workers")
        return self
