"""A stage that changes what an encoder does with a text, and none of its weights."""

from typing import Literal

from pydantic import Field, model_validator

from lsr_prod.config.section import Section

__all__ = ["AdaptEncoderSettings"]


class AdaptEncoderSettings(Section):
    """Fields of the encoder card; what is unset stays as it is."""

    stage: Literal["set_encoder"] = Field(description="kind of the stage")
    attention: Literal["bidirectional", "causal", "echo"] | None = Field(
        None,
        description="what a token of a decoder sees: all others, those before it, or, in a text that is given twice, "
        "those before it, where the second copy is pooled (csplade, 4). Encoders are bidirectional",
    )
    pooled_states: Literal["tokens", "mean"] | None = Field(
        None, description="mean: hidden states are averaged before the vocabulary head (esplade-pretraining, J.1)"
    )
    activation: Literal["log1p_relu", "l0"] | None = Field(None, description="l0 takes the logarithm twice")
    pooled_tokens: Literal["all", "not_bos"] | None = Field(
        None, description="not_bos leaves the first token out, as decoders always do"
    )
    casing: Literal["lowercase"] | None = Field(
        None, description="texts are lowercased before they are tokenised (casing, 3)"
    )
    output_casing: Literal["all", "uncased"] | None = Field(
        None, description="uncased: cased terms are dropped, those without a lowercase form become it (casing, 3)"
    )
    query_encoder: Literal["model", "idf"] | None = Field(
        None,
        description="idf: no model reads queries; their terms are weighed by inverse document frequencies of the index "
        "(arXiv 2411.04403). Text fields of the index have to be stored then",
    )
    query_max_length: int | None = Field(None, ge=2, description="tokens of a query, special tokens included")
    document_max_length: int | None = Field(None, ge=2, description="tokens of a document")
    query_prompt: str | None = Field(None, description="text put before every query")
    document_prompt: str | None = Field(None, description="text put before every document")

    @model_validator(mode="after")
    def _something(self) -> "AdaptEncoderSettings":
        if not self.changes():
            raise ValueError("set_encoder without a field changes nothing; give one or leave the stage out")
        return self

    def changes(self) -> dict[str, str | int]:
        """The fields that are set."""
        values: dict[str, str | int] = self.model_dump(exclude={"stage"}, exclude_none=True)
        return values
