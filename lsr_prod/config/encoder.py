"""Settings of the stage that changes the encoder card of a model and none of its weights."""

from typing import Literal

from pydantic import Field, model_validator

from lsr_prod.config.section import Section


class AdaptEncoderSettings(Section):
    """Fields of the encoder card to change; other fields keep their values."""

    stage: Literal["set_encoder"] = Field(description="kind of the stage")
    attention: Literal["bidirectional", "causal", "echo"] | None = Field(
        None,
        description="attention of a decoder. bidirectional: each token attends to all tokens; causal: to the "
        "tokens before it; echo: causal, with the text repeated and only the second copy pooled "
        "(csplade, 4)",
    )
    pooled_states: Literal["tokens", "mean"] | None = Field(
        None, description="mean: average the hidden states before the vocabulary head (esplade-pretraining, J.1)"
    )
    activation: Literal["log1p_relu", "l0"] | None = Field(None, description="l0: apply the logarithm twice")
    pooled_tokens: Literal["all", "not_bos"] | None = Field(
        None, description="not_bos: leave out the first token, as decoders always do"
    )
    casing: Literal["lowercase"] | None = Field(
        None, description="lowercase: lowercase texts before tokenizing (casing, 3)"
    )
    output_casing: Literal["all", "uncased"] | None = Field(
        None,
        description="uncased: drop cased terms; a cased term without a lowercase form is renamed to it (casing, 3)",
    )
    query_encoder: Literal["model", "idf", "learned"] | None = Field(
        None,
        description="idf: inference-free queries; query terms are weighted by inverse document frequencies of "
        "the index (arXiv 2411.04403), which then needs stored text fields; learned: by a table that finetune trains "
        "(arXiv 2505.01452)",
    )
    query_max_length: int | None = Field(None, ge=2, description="maximum tokens of a query, special tokens included")
    document_max_length: int | None = Field(
        None, ge=2, description="maximum tokens of a document, special tokens included"
    )
    query_prompt: str | None = Field(None, description="text put before every query")
    document_prompt: str | None = Field(None, description="text put before every document")

    @model_validator(mode="after")
    def _something(self) -> "AdaptEncoderSettings":
        if not self.changes():
            raise ValueError("set_encoder without a field changes nothing; set a field or remove the stage")
        return self

    def changes(self) -> dict[str, str | int]:
        """Return the fields that are set."""
        values: dict[str, str | int] = self.model_dump(exclude={"stage"}, exclude_none=True)
        return values
