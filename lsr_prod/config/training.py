"""Settings of training: a chain of stages, each from a model directory to a model directory."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag, field_validator

from lsr_prod.config import language, section
from lsr_prod.config.model import AdaptEncoderSettings, VocabularySettings
from lsr_prod.config.objective import ObjectiveSettings, QueryWeightsSettings


class ValidationSettings(section.JudgedCollection):
    """Validation during training, with an index of a collection."""

    every: int = Field(1000, ge=1)
    """steps between two validations; the first one is before the first step, the last one after the last step"""
    measures: list[str] = Field(["RR@10", "R@10", "R@100"], min_length=1)
    """measures, as named by ir_measures, trec_eval or BEIR"""
    overlap_threshold: float = Field(0.0, ge=0, le=1)
    """overlap threshold of the searches"""
    qk: int = Field(0, ge=0)
    """maximum terms of a query, heaviest first; 0: all"""
    dk: int = Field(0, ge=0)
    """maximum terms of a document, heaviest first; 0: all"""
    keep_best: str | None = None
    """keep the weights with the best value of this measure, which may be those of the start; last: keep the last
    weights; default: keep the last weights, but those of the start if the first of measures was better there with no
    more FLOPS"""
    stop_after: int | None = Field(None, ge=1)
    """end the training after this number of consecutive validations without a better value of keep_best, or of the
    first of measures; default: train all steps"""
    min_delta: float = Field(0.0, ge=0, allow_inf_nan=False)
    """stop_after: a value is better if it exceeds the best one so far by more than this"""

    @property
    def watched(self) -> str:
        """Measure whose best value is reported, and which early stopping compares."""
        return self.keep_best if self.keeps_best and self.keep_best else self.measures[0]

    @property
    def keeps_best(self) -> bool:
        """True if the weights of the best validation are kept."""
        return self.keep_best not in (None, "last")

    def _problems(self) -> section.Problems:
        yield from self._unread("min_delta", need="stop_after", met=self.stop_after is not None)
        if self.keeps_best and self.keep_best not in self.measures:
            yield f"keep_best has to be last or one of the measures, {', '.join(self.measures)}"


OneOrMoreSets = Annotated[
    Annotated[section.TrainingDataSettings, Tag("set")] | Annotated[list[section.DataSetSettings], Tag("sets")],
    Discriminator(lambda value: "sets" if isinstance(value, list) else "set"),
]
"""One data set, or a list of named ones. The tags keep the error messages of one form free of the other."""


class FinetuneSettings(language.TrainedStage):
    """Stage that fine-tunes an encoder for retrieval."""

    stage: Literal["finetune"] = "finetune"
    """kind of the stage"""
    data: OneOrMoreSets
    """training rows: one data set, or a list of data sets, each with a name and a weight; all rows of a batch are from
    one data set"""
    sampling: Literal["proportional", "round_robin"] = "proportional"
    """with a list of data sets, the data set of each batch. proportional: in random order, each as often as its number
    of batches times its weight; otherwise in turns, each equally often"""
    batch: section.BatchSettings = section.BatchSettings()
    """batch of one step"""
    objective: ObjectiveSettings
    """losses and regularizers"""
    validation: ValidationSettings | None = None
    """validation during training, with an index"""
    query_max_length: int | None = Field(None, ge=3)
    """maximum tokens of a query in training; default: from the encoder card"""
    document_max_length: int | None = Field(None, ge=3)
    """maximum tokens of a document in training; default: from the encoder card"""
    card_query_max_length: int | None = Field(None, ge=3)
    """maximum tokens of a query in the encoder card of the trained model, for validation, encoding and search; default:
    query_max_length"""
    card_document_max_length: int | None = Field(None, ge=3)
    """maximum tokens of a document in the encoder card of the trained model, for validation, encoding and search; may
    be more than document_max_length, which is its default"""
    idf_corpus: section.TextData | None = None
    """texts that the IDF weights of inference-free queries are counted on, kind texts; default: the documents of data,
    each once"""
    query_model: section.Location | None = Field(None, min_length=1)
    """folder or URI of a model directory that encodes queries from this stage on, with the same output vocabulary, for
    example a smaller one; default: one model encodes queries and documents"""
    trained: Literal["both", "query", "document"] = "both"
    """with a separate query encoder, the encoder that is trained; the other one is frozen"""
    query_weights: QueryWeightsSettings | None = None
    """training of the query weights of a model with query_encoder learned; default: its defaults"""

    def _problems(self) -> section.Problems:
        yield from super()._problems()
        yield from self._problems_of_losses()
        yield from self._problems_of_sets()
        yield from self._problems_of_sides()

    def _problems_of_losses(self) -> section.Problems:
        kinds = {one.kind for one in self.data_sets}
        if "texts" in kinds:
            yield "fine-tuning needs queries and documents; data.kind cannot be texts"
        if {loss.loss for loss in self.objective.losses} & {"margin_mse", "kl"} and kinds != {"scores"}:
            yield "margin_mse and kl need data.kind scores, from a teacher"
        if self.batch.negatives and kinds == {"pairs"}:
            yield "rows of kind pairs have no negatives; set batch.negatives to 0"
        if self.needs_negative and "pairs" in kinds:
            yield "info_nce without in_batch needs negatives in every row; rows of kind pairs have none"
        if self.needs_negative and not self.batch.negatives:
            yield "margin_mse, kl and info_nce without in_batch need batch.negatives of 1 or more"
        if self.objective.queue is not None and self.scale.strategy == "fsdp":
            yield "the momentum copy of a queue needs scale.strategy ddp"

    def _problems_of_sets(self) -> section.Problems:
        if not isinstance(self.data, list):
            if self.sampling != "proportional":
                yield "sampling chooses among several data sets; give a list of them as data"
            return
        names = [one.name for one in self.data]
        if len(names) < 2:
            yield "a list of data sets has two or more; give a single one without the list"
        if len(set(names)) < len(names):
            yield f"each data set needs a name of its own; data has {', '.join(names)}"
        if self.sampling == "round_robin" and any(one.weight != 1 for one in self.data):
            yield "round_robin takes equally many batches of every data set; remove the weights"

    def _problems_of_sides(self) -> section.Problems:
        for regularizer in self.objective.sparsity.regularizers:
            frozen = {"query": regularizer.document, "document": regularizer.query, "both": 0.0}[self.trained]
            if frozen:
                yield f"{regularizer.regularizer} has a weight for the vectors that trained freezes; remove it"
        if self.query_model is not None and self.scale.lora is not None:
            yield "a separate query encoder is trained without scale.lora; remove one of them"
        if self.query_model is not None and self.scale.strategy == "fsdp":
            yield "a separate query encoder needs scale.strategy ddp"

    @property
    def data_sets(self) -> list[section.TrainingDataSettings]:
        """The data sets, in order; a single one has no name."""
        return list(self.data) if isinstance(self.data, list) else [self.data]

    @property
    def needs_negative(self) -> bool:
        """True if a loss is undefined for a row without a hard negative: it compares the documents of one query."""
        return any(
            loss.loss in ("margin_mse", "kl") or (loss.loss == "info_nce" and not loss.in_batch)
            for loss in self.objective.losses
        )


LoopSettings = FinetuneSettings | language.LanguageSettings
"""The settings of a stage with a training loop."""

StageSettings = (
    FinetuneSettings
    | language.AdaptMlmSettings
    | language.PretrainEmlmSettings
    | language.AdaptCausalSettings
    | language.DistilHeadSettings
    | VocabularySettings
    | AdaptEncoderSettings
)
"""Settings of a stage of any kind."""

STAGES: dict[str, type[section.Section]] = {
    get_args(kind.model_fields["stage"].annotation)[0]: kind for kind in get_args(StageSettings)
}
"""Kind of a stage -> its settings."""


class TrainSettings(section.Section):
    """Training by a chain of stages."""

    model: section.Location = Field(min_length=1)
    """folder or URI of a model to start from, or a Hugging Face id"""
    output: section.Location = Field(min_length=1)
    """folder or URI of the trained model; must not exist, or hold the same one"""
    work: section.Location = Field(min_length=1)
    """folder or URI that all workers can access, for training sets, checkpoints, logs and intermediate models; finished
    ones are reused"""
    stages: list[Annotated[StageSettings, Field(discriminator="stage")]] = Field(min_length=1)
    """stages, in order"""
    workers: int | None = Field(None, ge=1)
    """number of training processes; with min_workers, the maximum; default: one per GPU of the cluster, without GPUs
    one per machine"""
    min_workers: int | None = Field(None, ge=1)
    """minimum number of workers to continue with when machines are lost; default: wait for all workers"""
    use_gpu: bool | None = None
    """use one GPU per worker; default: true if the cluster has a GPU for every worker"""
    cpus_per_worker: float | None = Field(None, gt=0)
    """cores per worker; on a CPU also its threads; default: all cores of the machines, divided among the workers; on a
    local cluster at most OMP_NUM_THREADS"""
    max_failures: int = Field(10, ge=-1)
    """number of times that lost workers are replaced before the job fails; -1: no limit"""

    @field_validator("stages", mode="before")
    def _named(cls, stages: Any) -> Any:
        """A stage without a kind is ``finetune``."""
        if not isinstance(stages, list):
            return stages
        return [{"stage": "finetune", **stage} if isinstance(stage, dict) else stage for stage in stages]

    def _problems(self) -> section.Problems:
        if self.min_workers is not None and self.workers is not None and self.min_workers > self.workers:
            yield "min_workers is more than workers"
