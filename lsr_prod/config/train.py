"""A model is trained: a chain of stages, each from a model directory to a model directory."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from lsr_prod.config.encoder import AdaptEncoderSettings
from lsr_prod.config.language import AdaptCausalSettings, AdaptMlmSettings, DistilHeadSettings, PretrainEmlmSettings
from lsr_prod.config.objective import ObjectiveSettings
from lsr_prod.config.optimization import LoraSettings, OptimizerSettings, ScaleSettings, WatchSettings
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
    """The model is judged by a real index of a real collection while it is trained."""

    corpus: str = Field(min_length=1, description="JSONL of the documents: _id, title, text (BEIR)")
    queries: str = Field(min_length=1, description="JSONL of the queries: _id, text (BEIR)")
    qrels: str = Field(min_length=1, description="judgements: query, document, grade, tab-separated (BEIR)")
    every: int = Field(1000, ge=1, description="steps between two validations; one more comes at the end")
    documents: int | None = Field(
        None, ge=1, description="documents at most: the judged ones first, then others; unset: all"
    )
    max_queries: int | None = Field(None, ge=1, description="queries at most; unset: all judged ones")
    measures: list[str] = Field(["RR@10", "R@10", "R@100"], min_length=1, description="in the names of ir_measures")
    overlap_threshold: float = Field(0.0, ge=0, le=1, description="as in a search")
    qk: int = Field(0, ge=0, description="heaviest terms of a query; 0: all")
    dk: int = Field(0, ge=0, description="heaviest terms of a document; 0: all")
    keep_best: str | None = Field(
        None, description="the stage ends with the weights of the best value of this measure; unset: the last weights"
    )

    @model_validator(mode="after")
    def _measured(self) -> "ValidationSettings":
        if self.keep_best is not None and self.keep_best not in self.measures:
            raise ValueError(f"keep_best has to be one of the measures, {', '.join(self.measures)}")
        return self


class FinetuneSettings(Section):
    """A stage that trains an encoder for retrieval."""

    stage: Literal["finetune"] = Field("finetune", description="kind of the stage")
    data: TrainingDataSettings = Field(description="what it trains on")
    batch: BatchSettings = Field(BatchSettings(), description="what one step trains on")
    steps: int | None = Field(None, ge=1, description="steps; give this or epochs")
    epochs: float | None = Field(None, gt=0, allow_inf_nan=False, description="passes over the data")
    objective: ObjectiveSettings = Field(description="what is minimised")
    optimizer: OptimizerSettings = Field(OptimizerSettings(), description="AdamW and its learning rate")
    scale: ScaleSettings = Field(ScaleSettings(), description="how the model is spread")
    validation: ValidationSettings | None = Field(None, description="judged by a real index while it is trained")
    watch: WatchSettings = Field(WatchSettings(), description="what is reported")
    checkpoint_every: int = Field(500, ge=1, description="steps between two checkpoints")
    query_max_length: int | None = Field(None, ge=3, description="tokens of a query; unset: as the model's card says")
    document_max_length: int | None = Field(None, ge=3, description="tokens of a document; unset: as the card says")
    dropout: float | None = Field(None, ge=0, lt=1, description="dropout of the model; unset: as its config says")
    idf_corpus: TrainingDataSettings | None = Field(
        None,
        description="texts whose frequencies weigh the queries of a model with query_encoder idf, kind texts; unset: "
        "the documents of data, each once",
    )
    seed: int = Field(0, ge=0, description="of order, dropout and draws of negatives")

    @model_validator(mode="after")
    def _consistent(self) -> "FinetuneSettings":
        if self.idf_corpus is not None and self.idf_corpus.kind != "texts":
            raise ValueError("idf_corpus holds documents; its kind is texts")
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give steps or epochs, one of the two")
        if self.data.kind == "texts":
            raise ValueError("a fine-tuning needs queries and documents; data.kind cannot be texts")
        if self.batch.accumulate > 1 and any(
            one.regularizer == "cased" for one in self.objective.sparsity.regularizers
        ):
            raise ValueError("cased is a sum over the whole batch, accumulate makes means of parts; take batch.chunk")
        losses = {loss.loss for loss in self.objective.losses}
        if losses & {"margin_mse", "kl"} and self.data.kind != "scores":
            raise ValueError("margin_mse and kl need data.kind scores, a teacher's")
        if self.batch.negatives and self.data.kind == "pairs":
            raise ValueError("rows of kind pairs have no negatives; set batch.negatives to 0")
        if losses & {"margin_mse", "kl"} and not self.batch.negatives:
            raise ValueError("margin_mse and kl need batch.negatives of 1 or more")
        if any(loss.loss == "info_nce" and not loss.in_batch for loss in self.objective.losses) and (
            not self.batch.negatives
        ):
            raise ValueError("info_nce without in_batch needs batch.negatives")
        if self.objective.queue is not None and self.scale.strategy == "fsdp":
            raise ValueError("the slow copy of a queue needs scale.strategy ddp")
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
"""The settings of a stage of any kind."""

STAGES: dict[str, type[Section]] = {
    get_args(kind.model_fields["stage"].annotation)[0]: kind for kind in get_args(StageSettings)
}
"""The settings of every kind of stage, by its name."""


class TrainSettings(Section):
    """A chain of stages."""

    model: str = Field(min_length=1, description="model directory to start from, or a Hugging Face id")
    output: str = Field(min_length=1, description="folder of the trained model; must not exist, or hold the same one")
    work: str = Field(
        min_length=1,
        description="folder or URI that every worker reaches: training sets, checkpoints, logs and the models between "
        "stages; what is there already is used again",
    )
    stages: list[Annotated[StageSettings, Field(discriminator="stage")]] = Field(min_length=1, description="in order")
    workers: int = Field(1, ge=1, description="training processes; with min_workers the most of them")
    min_workers: int | None = Field(
        None, ge=1, description="go on with as few as this when machines are lost or taken away; unset: wait for all"
    )
    use_gpu: bool = Field(False, description="one GPU for each worker")
    cpus_per_worker: float = Field(1, gt=0, description="cores of a worker, which are also its threads on a CPU")
    max_failures: int = Field(
        10, ge=-1, description="times that workers may be lost and replaced before the job fails; -1: any number"
    )

    @field_validator("stages", mode="before")
    @classmethod
    def _named(cls, stages: Any) -> Any:
        """A stage that does not say what it is fine-tunes."""
        if not isinstance(stages, list):
            return stages
        return [{"stage": "finetune", **stage} if isinstance(stage, dict) else stage for stage in stages]

    @model_validator(mode="after")
    def _elastic(self) -> "TrainSettings":
        if self.min_workers is not None and self.min_workers > self.workers:
            raise ValueError("min_workers is more than workers")
        return self
