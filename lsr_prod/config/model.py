"""Settings of the export of a model."""

from typing import Literal

from pydantic import Field

from lsr_prod.config.location import Location
from lsr_prod.config.section import Section


class ExportSettings(Section):
    """Export of a model as an ONNX bundle."""

    model: Location = Field(min_length=1, description="folder or URI of a model directory, or a Hugging Face id")
    output: Location = Field(
        min_length=1, description="folder or URI of the bundle; must not exist, or hold the same bundle"
    )
    precision: Literal["fp32", "fp16", "int8"] = Field(
        "fp32", description="number format of the weights; use fp16 on GPUs and int8 on CPUs"
    )
    top_k: int = Field(512, ge=1, description="maximum terms of a vector (TopK in the graph)")
    parity_texts: Location | None = Field(
        None, description="JSONL file or URI with a field text for the parity check; default: built-in sentences"
    )
    probe_texts: Location | None = Field(
        None,
        description="JSONL file or URI with a field text: terms that no text activates are removed from the graph; "
        "default: keep all terms",
    )
    min_overlap: float = Field(
        0.999, ge=0, le=1, description="parity check: minimum mean top-k overlap with torch, fp32"
    )
    fp16_min_overlap: float = Field(
        0.98, ge=0, le=1, description="parity check: minimum mean top-k overlap with torch, fp16"
    )
    int8_min_overlap: float = Field(
        0.9, ge=0, le=1, description="parity check: minimum mean top-k overlap with torch, int8"
    )
