"""Stages that train on plain text: language modelling, masked or causal, and distillation of a teacher's vectors."""

from typing import Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from lsr_prod.config.optimization import OptimizerSettings, ScaleSettings, WatchSettings
from lsr_prod.config.section import Section
from lsr_prod.config.training_data import TrainingDataSettings

__all__ = [
    "AdaptCausalSettings",
    "AdaptMlmSettings",
    "DistilHeadSettings",
    "LanguageSettings",
    "PretrainEmlmSettings",
    "TextBatchSettings",
    "TextValidationSettings",
]


class TextBatchSettings(Section):
    """What one step trains on. All numbers are of the global batch, whatever the number of workers."""

    texts: int = Field(32, ge=1, description="texts of a step, over all workers; of adapt_causal, packed blocks")
    accumulate: int = Field(
        1, ge=1, description="parts into which a step is cut to save memory; the gradient stays that of the whole batch"
    )
    group_by_length: bool = Field(True, description="batches of texts of similar length; the order stays random")

    @field_validator("accumulate")
    @classmethod
    def _divides(cls, accumulate: int, info: ValidationInfo) -> int:
        texts = info.data.get("texts", accumulate)
        if texts % accumulate:
            raise ValueError(f"it has to cut the {texts} texts of a batch into equal parts")
        return accumulate


class TextValidationSettings(Section):
    """The loss on texts that are held out, while the model is trained."""

    data: TrainingDataSettings = Field(description="the texts; kind texts")
    every: int = Field(1000, ge=1, description="steps between two validations; one more comes at the end")
    texts: int | None = Field(None, ge=1, description="texts at most, the first ones; unset: all")

    @field_validator("data")
    @classmethod
    def _texts(cls, data: TrainingDataSettings) -> TrainingDataSettings:
        return _only_texts(data)


class LanguageSettings(Section):
    """What the stages on plain text share."""

    stage: str = Field(description="kind of the stage")
    data: TrainingDataSettings = Field(description="what it trains on; kind texts")
    batch: TextBatchSettings = Field(TextBatchSettings(), description="what one step trains on")
    steps: int | None = Field(None, ge=1, description="steps; give this or epochs")
    epochs: float | None = Field(None, gt=0, allow_inf_nan=False, description="passes over the data")
    max_length: int | None = Field(
        None, ge=3, description="tokens of a text, special tokens included; unset: as the card says of documents"
    )
    trained: Literal["all", "embeddings", "head"] = Field(
        "all",
        description="embeddings: token embeddings, output matrix and its bias, all else is frozen; head: everything "
        "behind the transformer, which needs an output matrix that is not the embeddings'",
    )
    optimizer: OptimizerSettings = Field(OptimizerSettings(), description="AdamW and its learning rate")
    scale: ScaleSettings = Field(ScaleSettings(), description="how the model is spread")
    validation: TextValidationSettings | None = Field(None, description="the loss on other texts")
    watch: WatchSettings = Field(WatchSettings(), description="what is reported; l0_target is of distil_head")
    checkpoint_every: int = Field(500, ge=1, description="steps between two checkpoints")
    dropout: float | None = Field(None, ge=0, lt=1, description="dropout of the model; unset: as its config says")
    seed: int = Field(0, ge=0, description="of order, dropout and masks")

    @field_validator("data")
    @classmethod
    def _texts(cls, data: TrainingDataSettings) -> TrainingDataSettings:
        return _only_texts(data)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give steps or epochs, one of the two")
        if self.scale.lora is not None and self.trained != "all":
            raise ValueError("low-rank updates are of the transformer; scale.lora needs trained: all")
        return self


class AdaptMlmSettings(LanguageSettings):
    """Masked language modelling, after a transfer of the vocabulary above all (vocabulary-transfer, 4.2.3)."""

    stage: Literal["adapt_mlm"] = Field(description="kind of the stage")
    trained: Literal["all", "embeddings", "head"] = Field("embeddings", description="embeddings: as in the paper")
    mask_rate: float = Field(0.3, gt=0, lt=1, description="expected share of a text's tokens that is masked")
    new_token_weight: float = Field(
        2.0,
        ge=1,
        allow_inf_nan=False,
        description="a new token is masked this many times as often as one that the old vocabulary has too; 1: alike",
    )
    reference: str | None = Field(
        None,
        min_length=1,
        description="tokenizer.json, or a folder that has one, of the old vocabulary: tokens that it lacks are new; "
        "unset: as the transfer says that made the model",
    )


class PretrainEmlmSettings(LanguageSettings):
    """Masked words of an expanded output vocabulary (esplade-pretraining, B.2)."""

    stage: Literal["pretrain_emlm"] = Field(description="kind of the stage")
    mask_share: float = Field(0.15, gt=0, lt=1, description="share of a text's words that is masked; one at least")
    labelled: Literal["all", "first"] = Field(
        "all", description="which sub-tokens of a masked word have to predict it: all, or the first one only"
    )


class AdaptCausalSettings(LanguageSettings):
    """Next-token prediction that gets a causal model used to the activation of sparse vectors (csplade, 3.2)."""

    stage: Literal["adapt_causal"] = Field(description="kind of the stage")
    relu_weight: float = Field(
        1.0, ge=0, allow_inf_nan=False, description="weight of the loss of log(1 + relu(logits)); 0: plain modelling"
    )


class DistilHeadSettings(LanguageSettings):
    """A teacher's sparse vectors are learnt (vocabulary-transfer, 6.3, SAP)."""

    stage: Literal["distil_head"] = Field(description="kind of the stage")
    trained: Literal["all", "embeddings", "head"] = Field("head", description="head: the transformer is frozen")
    teacher: str = Field(
        min_length=1, description="model directory of an encoder with the same output terms; any tokenizer"
    )
    loss: Literal["mse", "cosine"] = Field(
        "mse", description="mse: squared differences summed over terms; cosine: one minus the cosine"
    )


def _only_texts(data: TrainingDataSettings) -> TrainingDataSettings:
    if data.kind != "texts":
        raise ValueError(f"a language model trains on plain text; data.kind is {data.kind} and has to be texts")
    return data
