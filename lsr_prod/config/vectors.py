"""Settings of the exchange of vectors with other tools."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from lsr_prod.config.section import ImpactBits, Location, Section, SourceLocation, TableLocation


class VectorsSettings(Section):
    """Import of vectors into a sparse table, or export of a sparse table."""

    action: Literal["import", "export"]
    """import: paths -> table; export: table -> output"""
    table: TableLocation = Field(min_length=1)
    """folder or URI of the sparse table; an import creates it"""
    bundle: Location = Field(min_length=1)
    """folder or URI of the bundle whose output vocabulary the terms belong to"""
    format: Literal["jsonl", "tsv", "npz", "ciff", "csr", "parquet"] = "jsonl"
    """jsonl: JSONL of Anserini, {id, contents, vector}; tsv: topics of Anserini, import only; npz: a CSR matrix of
    scipy, with its ids in a file next to it; ciff: postings lists of Anserini, PISA and Terrier, frequencies as
    weights; csr: the sparse track of BigANN, import only, ids in a file next to it or row numbers; parquet: the rows of
    the table as Parquet files in folders, export only"""
    paths: list[SourceLocation] = Field([])
    """import: files, folders or globs"""
    quarantine: Location | None = None
    """import: folder or URI of the quarantine table (Parquet); default: <table>_quarantine"""
    buckets: int = Field(16, ge=1, le=256)
    """import: number of hash buckets (partitions) of the table"""
    impact_bits: ImpactBits = 8
    """import: bits per impact: 4, 8 or 16; an index supports 4 and 8"""
    impact_step: float | None = Field(None, gt=0, allow_inf_nan=False)
    """import: weight of one impact unit; default: derived from the largest weight of the input"""
    max_impact_error: float | None = Field(0.2, gt=0, allow_inf_nan=False)
    """import: refuse vectors if the mean error of an impact exceeds this share of the mean weight, for example because
    one weight is far too large; null: no limit"""
    quantized: bool = False
    """import: the weights are already integer impacts and are kept unchanged; needs impact_step"""
    store_k: int | None = Field(None, ge=1)
    """import: terms stored per vector, heaviest first; default: all"""
    contents: str | None = Field("text", min_length=1)
    """stored field for the contents; null: do not store them"""
    unknown_terms: Literal["quarantine", "drop", "refuse"] = "quarantine"
    """import: on a term outside the vocabulary, quarantine the vector, drop and count the term, or refuse the whole
    import"""
    bad_weights: Literal["quarantine", "refuse"] = "quarantine"
    """import: on a weight that is negative, NaN, infinite or not an impact, quarantine the vector or refuse the
    import"""
    output: Location | None = None
    """export: file to create: .jsonl, .jsonl.gz, .npz, .ciff or .ciff.gz; parquet: new folder or URI"""
    partition_by: list[str] = Field(["bucket"])
    """export of parquet: columns whose values become folders, <column>=<value>: bucket, stored fields"""
    table_version: int | None = Field(None, ge=0)
    """export: version of the table; default: the newest"""
    weights: Literal["impacts", "floats"] = "impacts"
    """export: stored integer impacts, or floats (impact * impact_step)"""

    @field_validator("quantized")
    def _with_step(cls, quantized: bool, info: ValidationInfo) -> bool:
        if quantized and info.data.get("impact_step", 0) is None:
            raise ValueError(
                "the weight of an impact is unknown without its step; give vectors.impact_step, or 1 if there is none"
            )
        return quantized
