"""Settings of stages that train on plain text: masked and causal language modeling, and head distillation."""

from typing import Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from lsr_prod.config.location import Location
from lsr_prod.config.optimization import OptimizerSettings, ScaleSettings, WatchSettings
from lsr_prod.config.section import Section
from lsr_prod.config.training_data import TrainingDataSettings


class TextBatchSettings(Section):
    """Batch of one step. All numbers are of the global batch, for any number of workers."""

    texts: int = Field(32, ge=1, description="texts per step, over all workers; packed blocks for adapt_causal")
    accumulate: int = Field(
        1,
        ge=1,
        description="number of parts into which a step is split to save memory; the gradient is that of the "
        "whole batch",
    )
    group_by_length: bool = Field(True, description="batch texts of similar length; the order of batches stays random")

    @field_validator("accumulate")
    @classmethod
    def _divides(cls, accumulate: int, info: ValidationInfo) -> int:
        texts = info.data.get("texts", accumulate)
        if texts % accumulate:
            raise ValueError(f"it has to split the {texts} texts of a batch into equal parts")
        return accumulate


class TextValidationSettings(Section):
    """Loss on held-out texts during training."""

    data: TrainingDataSettings = Field(description="held-out texts; kind texts")
    every: int = Field(
        1000,
        ge=1,
        description="steps between two validations; the first one is before the first step, the last one after the "
        "last step",
    )
    texts: int | None = Field(None, ge=1, description="maximum number of texts, from the start; default: all")

    @field_validator("data")
    @classmethod
    def _texts(cls, data: TrainingDataSettings) -> TrainingDataSettings:
        return _only_texts(data)


class LanguageSettings(Section):
    """Settings that all stages on plain text share."""

    stage: str = Field(description="kind of the stage")
    data: TrainingDataSettings = Field(description="training texts; kind texts")
    batch: TextBatchSettings = Field(TextBatchSettings(), description="batch of one step")
    steps: int | None = Field(None, ge=1, description="number of steps; give this or epochs")
    epochs: float | None = Field(None, gt=0, allow_inf_nan=False, description="number of passes over the data")
    max_length: int | None = Field(
        None,
        ge=3,
        description="maximum tokens of a text, special tokens included; default: the document length of the "
        "encoder card",
    )
    trained: Literal["all", "embeddings", "head"] = Field(
        "all",
        description="weights to train. embeddings: token embeddings, output matrix and its bias; head: "
        "everything after the transformer, for models whose output matrix is not tied to the "
        "embeddings; all other weights are frozen",
    )
    optimizer: OptimizerSettings = Field(OptimizerSettings(), description="AdamW and its learning rate")
    scale: ScaleSettings = Field(ScaleSettings(), description="distribution over workers, precision and memory")
    validation: TextValidationSettings | None = Field(None, description="loss on held-out texts")
    watch: WatchSettings = Field(
        WatchSettings(), description="reports and early stopping; l0_target applies to distil_head only"
    )
    checkpoint_every: int = Field(500, ge=1, description="steps between two checkpoints")
    dropout: float | None = Field(None, ge=0, lt=1, description="dropout of the model; default: from its config")
    seed: int = Field(0, ge=0, description="seed of order, dropout and masks")

    @field_validator("data")
    @classmethod
    def _texts(cls, data: TrainingDataSettings) -> TrainingDataSettings:
        return _only_texts(data)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give steps or epochs, one of the two")
        if self.scale.lora is not None and self.trained != "all":
            raise ValueError("scale.lora updates the transformer; it needs trained: all")
        return self


class AdaptMlmSettings(LanguageSettings):
    """Masked language modeling, mainly after a vocabulary transfer (vocabulary-transfer, 4.2.3)."""

    stage: Literal["adapt_mlm"] = Field(description="kind of the stage")
    trained: Literal["all", "embeddings", "head"] = Field(
        "embeddings", description="weights to train; embeddings: as in the paper"
    )
    mask_rate: float = Field(0.3, gt=0, lt=1, description="expected share of the tokens of a text that is masked")
    new_token_weight: float = Field(
        2.0,
        ge=1,
        allow_inf_nan=False,
        description="new tokens are masked this many times as often as tokens of the old vocabulary; 1: equally often",
    )
    reference: Location | None = Field(
        None,
        min_length=1,
        description="tokenizer.json of the old vocabulary, or its folder or URI: tokens that are not in it are new; "
        "default: the vocabulary that the model was transferred from",
    )


class PretrainEmlmSettings(LanguageSettings):
    """Masked words of an expanded output vocabulary (esplade-pretraining, B.2)."""

    stage: Literal["pretrain_emlm"] = Field(description="kind of the stage")
    mask_share: float = Field(0.15, gt=0, lt=1, description="share of a text's words that is masked; one at least")
    labelled: Literal["all", "first"] = Field(
        "all", description="which sub-tokens of a masked word have to predict it: all, or the first one only"
    )


class AdaptCausalSettings(LanguageSettings):
    """Next-token prediction that adapts a causal model to the activation of sparse vectors (csplade, 3.2)."""

    stage: Literal["adapt_causal"] = Field(description="kind of the stage")
    relu_weight: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="weight of the loss on log(1 + relu(logits)); 0: plain language modeling",
    )


class DistilHeadSettings(LanguageSettings):
    """Distillation of the sparse vectors of a teacher into the head (vocabulary-transfer, 6.3, SAP)."""

    stage: Literal["distil_head"] = Field(description="kind of the stage")
    trained: Literal["all", "embeddings", "head"] = Field(
        "head",
        description="weights to train; head: the transformer is frozen (ours: the paper names the method and does not "
        "say what it trains)",
    )
    teacher: Location = Field(
        min_length=1,
        description="folder or URI of an encoder with the same output vocabulary; its tokenizer may differ",
    )
    loss: Literal["mse", "cosine"] = Field(
        "mse", description="mse: squared differences summed over terms; cosine: one minus the cosine"
    )


def _only_texts(data: TrainingDataSettings) -> TrainingDataSettings:
    if data.kind != "texts":
        raise ValueError(f"language modeling needs plain text; data.kind is {data.kind} and has to be texts")
    return data
