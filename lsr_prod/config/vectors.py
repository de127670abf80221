"""Vectors that other tools wrote or are to read."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from lsr_prod.config.section import Section

__all__ = ["VectorsSettings"]


class VectorsSettings(Section):
    """Vectors of other tools become a sparse table, or a sparse table becomes vectors for them."""

    action: Literal["import", "export"] = Field(description="import: paths -> table; export: table -> output")
    table: str = Field(min_length=1, description="folder or URI of the sparse table; an import makes a new one")
    bundle: str = Field(min_length=1, description="folder of the bundle whose vocabulary the terms are of")
    format: Literal["jsonl", "tsv", "npz"] = Field(
        "jsonl",
        description="jsonl: Anserini's {id, contents, vector}; tsv: Anserini's topics, import only; npz: a CSR matrix "
        "of scipy, its ids beside it",
    )
    paths: list[str] = Field([], description="import: files, folders or globs")
    quarantine: str | None = Field(
        None, description="import: folder or URI of the bad rows (Parquet); unset: <table>_quarantine"
    )
    sink: Literal["delta", "parquet"] = Field("delta", description="import: kind of the table")
    buckets: int = Field(16, ge=1, le=256, description="import: hash buckets (partitions) of the table")
    impact_bits: int = Field(8, description="import: bits of an impact: 4, 8 or 16; an index takes 4 and 8")
    impact_step: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="import: weight of one impact unit; unset: the largest weight of the input fixes it",
    )
    quantised: bool = Field(
        False, description="import: weights are impacts already, integers that are kept as they are; needs impact_step"
    )
    store_k: int | None = Field(None, ge=1, description="import: terms kept of a vector, heaviest first; unset: all")
    contents: str | None = Field("text", min_length=1, description="stored field for the contents; null: none")
    unknown_terms: Literal["quarantine", "drop", "refuse"] = Field(
        "quarantine",
        description="import: of a term outside the vocabulary: quarantine its vector, drop the term and count it, or "
        "refuse the whole import",
    )
    bad_weights: Literal["quarantine", "refuse"] = Field(
        "quarantine", description="import: of a weight that is negative, NaN, infinite or no impact, the same"
    )
    output: str | None = Field(None, description="export: a new file; .jsonl or .jsonl.gz, or .npz")
    table_version: int | None = Field(None, ge=0, description="export: version of the table; unset: the newest")
    weights: Literal["impacts", "floats"] = Field(
        "impacts", description="export: integer impacts as they are stored, or impact * impact_step"
    )

    @field_validator("impact_bits")
    @classmethod
    def _known_width(cls, bits: int) -> int:
        if bits not in (4, 8, 16):
            raise ValueError("give 4, 8 or 16")
        return bits

    @field_validator("quantised")
    @classmethod
    def _with_a_step(cls, quantised: bool, info: ValidationInfo) -> bool:
        if quantised and info.data.get("impact_step", 0) is None:
            raise ValueError("an impact has no weight without a step; give vectors.impact_step, 1 if you know none")
        return quantised
