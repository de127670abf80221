"""Stages that change the output vocabulary, its head or its scale, and train nothing."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from lsr_prod.config.section import Section
from lsr_prod.config.training_data import TrainingDataSettings

__all__ = [
    "CalibrateSettings",
    "DomainTokenizerSettings",
    "ExpandVocabularySettings",
    "RescaleHeadSettings",
    "TransferVocabularySettings",
    "VocabularySettings",
]


def _only_texts(data: TrainingDataSettings | None) -> TrainingDataSettings | None:
    if data is not None and data.kind != "texts":
        raise ValueError(f"plain text is read; data.kind is {data.kind} and has to be texts")
    return data


class DomainTokenizerSettings(Section):
    """A lowercase tokenizer without accents that is trained on texts of a domain (vocabulary-transfer, 6.6)."""

    data: TrainingDataSettings = Field(description="the texts; kind texts")
    model: Literal["word_piece", "bpe"] = Field("bpe", description="bpe: byte-level, as in the paper")
    size: int = Field(30_000, ge=300, description="tokens, special ones included; the paper has 10k to 50k")
    min_count: int = Field(2, ge=1, description="times that a pair of pieces is seen before it is merged")

    _texts = field_validator("data")(_only_texts)


class TransferVocabularySettings(Section):
    """A model is moved onto another vocabulary (vocabulary-transfer, 4.2.1 and 4.2.2)."""

    stage: Literal["transfer_vocabulary"] = Field(description="kind of the stage")
    target: str | None = Field(
        None,
        min_length=1,
        description="model directory, folder of a tokenizer or tokenizer.json; give this or train_tokenizer",
    )
    train_tokenizer: DomainTokenizerSettings | None = Field(None, description="the target is trained on texts")
    parts: Literal["all", "head"] = Field(
        "all",
        description="all: input and output; head: the encoder keeps its tokenizer, its output terms are the target's",
    )
    initialisation: Literal["semantic", "subtoken", "mean", "random_new", "random_all"] = Field(
        description="rows of new tokens. semantic: sums of those near it in target_embeddings, by sparsemax; subtoken: "
        "mean of the source's sub-tokens; mean: mean of the rows that both vocabularies have; random_new: drawn; "
        "random_all: rows of old tokens are drawn too"
    )
    target_embeddings: str | None = Field(
        None,
        min_length=1,
        description="folder of a model with the target's tokens, a head is not needed; unset: target itself",
    )
    bias: Literal["target", "unigrams", "rows", "none"] = Field(
        "target",
        description="bias of the head. target: that of target_embeddings, in the source's scale (eq. 10); unigrams: "
        "log counts of the target's tokens in unigrams (ours), in the source's scale if it has a bias; rows: as the "
        "rows are made (ours); none: no bias, for a source that has none",
    )
    unigrams: TrainingDataSettings | None = Field(
        None,
        description="texts to count tokens in for bias unigrams, and to measure how words fall apart; unset: those of "
        "train_tokenizer",
    )
    unigram_texts: int = Field(100_000, ge=1, description="bias unigrams: texts at most, the first ones")
    seed: int = Field(0, ge=0, description="of drawn rows")

    _texts = field_validator("unigrams")(_only_texts)

    @model_validator(mode="after")
    def _consistent(self) -> "TransferVocabularySettings":
        if (self.target is None) == (self.train_tokenizer is None):
            raise ValueError("give target or train_tokenizer, one of the two")
        if self.train_tokenizer is not None and self.initialisation == "semantic":
            raise ValueError("no model knows the tokens of a tokenizer that is trained here; take subtoken")
        if self.train_tokenizer is not None and self.bias == "target":
            raise ValueError("a tokenizer that is trained here has no bias; take bias unigrams")
        if self.bias == "unigrams" and self.unigrams is None and self.train_tokenizer is None:
            raise ValueError("bias unigrams counts tokens in texts; give unigrams")
        if self.bias == "rows" and self.initialisation.startswith("random"):
            raise ValueError("drawn rows say nothing about a bias; take another one")
        if self.target_embeddings is not None and self.initialisation != "semantic" and self.bias != "target":
            raise ValueError("nothing is made of target_embeddings; take initialisation semantic or bias target")
        return self


class ExpandVocabularySettings(Section):
    """The most frequent words of a corpus become the output terms (esplade-pretraining, B.1)."""

    stage: Literal["expand_vocabulary"] = Field(description="kind of the stage")
    data: TrainingDataSettings = Field(description="the corpus; kind texts")
    size: int = Field(100_000, ge=1, description="words at most")
    min_count: int = Field(2, ge=1, description="times that a word has to be there")
    initialisation: Literal["subtoken", "random"] = Field(
        "subtoken", description="subtoken: mean over a word's sub-tokens; random: drawn, the baseline rand-vocab (G)"
    )
    seed: int = Field(0, ge=0, description="of drawn rows")

    _texts = field_validator("data")(_only_texts)


class CalibrateSettings(Section):
    """Activation potential calibration: a constant is taken from the head's bias (vocabulary-transfer, 4.2.3)."""

    stage: Literal["calibrate"] = Field(description="kind of the stage")
    shift: float | None = Field(
        None, allow_inf_nan=False, description="the constant c, the paper's is 5; give this or activation_rate"
    )
    activation_rate: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="share of pairs of text and term with a weight above 0, measured on data; the paper's plateau is "
        "0.3 to 0.5",
    )
    data: TrainingDataSettings | None = Field(None, description="texts that activation_rate is measured on; kind texts")
    texts: int = Field(512, ge=8, description="texts that are measured, spread over data; every second is held out")
    max_length: int | None = Field(
        None, ge=3, description="tokens of a text; unset: as the card says of documents. Take that of the training"
    )

    _texts = field_validator("data")(_only_texts)

    @model_validator(mode="after")
    def _consistent(self) -> "CalibrateSettings":
        if (self.shift is None) == (self.activation_rate is None):
            raise ValueError("give shift or activation_rate, one of the two")
        if (self.activation_rate is None) != (self.data is None):
            raise ValueError("data is what activation_rate is measured on; give both or none")
        return self


class RescaleHeadSettings(Section):
    """The output matrix is divided by a constant before training (head-rescaling, eq. 6)."""

    stage: Literal["rescale_head"] = Field(description="kind of the stage")
    alpha: float | Literal["auto"] = Field(
        description="the constant; the paper tries 1, 2, 4, 8 and 16. auto (ours): the smallest of these with which "
        "sample pairs are within max_score and max_weight"
    )
    data: TrainingDataSettings | None = Field(
        None, description="auto: rows with a query and a positive; kind pairs, triples, negatives or scores"
    )
    pairs: int = Field(128, ge=8, description="auto: rows that are looked at, spread over data")
    max_score: float = Field(
        100.0, gt=0, allow_inf_nan=False, description="auto: largest mean score of a query and its positive (ours)"
    )
    max_weight: float = Field(
        3.0, gt=0, allow_inf_nan=False, description="auto: largest mean of the texts' largest weights (ours)"
    )

    @model_validator(mode="after")
    def _consistent(self) -> "RescaleHeadSettings":
        if isinstance(self.alpha, float) and not 0 < self.alpha < float("inf"):
            raise ValueError("alpha is a number above 0, or auto")
        if (self.alpha == "auto") != (self.data is not None):
            raise ValueError("data is what auto looks at; give both or none")
        if self.data is not None and self.data.kind == "texts":
            raise ValueError("auto scores queries against their positives; data.kind cannot be texts")
        return self


VocabularySettings = TransferVocabularySettings | ExpandVocabularySettings | CalibrateSettings | RescaleHeadSettings
"""The settings of a stage that changes the output vocabulary, its head or its scale."""
