"""Settings of the export of a model."""

from typing import Literal

from pydantic import Field

from lsr_prod.config.section import Location, Problems, Section


class ExportSettings(Section):
    """Export of a model as an ONNX bundle."""

    model: Location = Field(min_length=1)
    """folder or URI of a model directory, or a Hugging Face id"""
    output: Location = Field(min_length=1)
    """folder or URI of the bundle; must not exist, or hold the same bundle"""
    precision: Literal["fp32", "fp16", "int8"] = "fp32"
    """number format of the weights; use fp16 on GPUs and int8 on CPUs"""
    top_k: int = Field(512, ge=1)
    """maximum terms of a vector (TopK in the graph)"""
    parity_texts: Location | None = None
    """JSONL file or URI with a field text for the parity check; default: built-in sentences"""
    probe_texts: Location | None = None
    """JSONL file or URI with a field text: terms that no text activates are removed from the graph; default: keep all
    terms"""
    min_overlap: float = Field(0.999, ge=0, le=1)
    """parity check: minimum mean top-k overlap with torch, fp32"""
    fp16_min_overlap: float = Field(0.98, ge=0, le=1)
    """parity check: minimum mean top-k overlap with torch, fp16"""
    int8_min_overlap: float = Field(0.9, ge=0, le=1)
    """parity check: minimum mean top-k overlap with torch, int8"""


class AdaptEncoderSettings(Section):
    """Fields of the encoder card to change; other fields keep their values."""

    stage: Literal["set_encoder"]
    """kind of the stage"""
    attention: Literal["bidirectional", "causal", "echo"] | None = None
    """attention of a decoder. bidirectional: each token attends to all tokens; causal: to the tokens before it; echo:
    causal, with the text repeated and only the second copy pooled (csplade, 4)"""
    pooled_states: Literal["tokens", "mean"] | None = None
    """mean: average the hidden states before the vocabulary head (esplade-pretraining, J.1)"""
    activation: Literal["log1p_relu", "l0"] | None = None
    """l0: apply the logarithm twice"""
    pooled_tokens: Literal["all", "not_bos", "appended"] | None = None
    """not_bos: leave out the first token, as decoders do; appended: read only the tokens that appended_tokens adds
    after the text, each with a head for a part of the vocabulary (UEmbed, arXiv 2608.02583)"""
    appended_tokens: int | None = Field(None, ge=1)
    """number of EOS tokens that follow the text, for pooled_tokens: appended"""
    casing: Literal["lowercase"] | None = None
    """lowercase: lowercase texts before tokenizing (casing, 3)"""
    output_casing: Literal["all", "uncased"] | None = None
    """uncased: drop cased terms; a cased term without a lowercase form is renamed to it (casing, 3)"""
    query_encoder: Literal["model", "idf", "learned"] | None = None
    """idf: inference-free queries; query terms are weighted by inverse document frequencies of the index (arXiv
    2411.04403), which then needs stored text fields; learned: by a table that finetune trains (arXiv 2505.01452)"""
    query_max_length: int | None = Field(None, ge=2)
    """maximum tokens of a query, special tokens included"""
    document_max_length: int | None = Field(None, ge=2)
    """maximum tokens of a document, special tokens included"""
    query_prompt: str | None = None
    """text put before every query"""
    document_prompt: str | None = None
    """text put before every document"""

    def _problems(self) -> Problems:
        if not self.changes():
            yield "set_encoder without a field changes nothing; set a field or remove the stage"

    def changes(self) -> dict[str, str | int]:
        """Return the fields that are set."""
        values: dict[str, str | int] = self.model_dump(exclude={"stage"}, exclude_none=True)
        return values
