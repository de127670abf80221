"""The model and what is made of it."""

from typing import Literal

from pydantic import Field

from lsr_prod.config.section import Section

__all__ = ["ExportSettings"]


class ExportSettings(Section):
    """A model becomes an ONNX bundle."""

    model: str = Field(min_length=1, description="model directory, or a Hugging Face id of a masked language model")
    output: str = Field(min_length=1, description="folder of the bundle; must not exist, or hold the same bundle")
    precision: Literal["fp32", "fp16", "int8"] = Field(
        "fp32", description="number format of the weights; fp16 is for GPUs, int8 for CPUs"
    )
    top_k: int = Field(512, ge=1, description="terms of a vector at most (the TopK inside the graph)")
    parity_texts: str | None = Field(
        None, description="JSONL with field text, read for the parity check; unset: built-in sentences"
    )
    probe_texts: str | None = Field(
        None,
        description="JSONL with field text: terms that none of them activates are cut from the graph; unset: none are",
    )
    min_overlap: float = Field(
        0.999, ge=0, le=1, description="parity: least mean top-k overlap with torch, fp32; others have their own"
    )
    fp16_min_overlap: float = Field(0.98, ge=0, le=1, description="parity: least mean top-k overlap with torch, fp16")
    int8_min_overlap: float = Field(0.9, ge=0, le=1, description="parity: least mean top-k overlap with torch, int8")
