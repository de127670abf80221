"""Settings of training data and of batches."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from lsr_prod.config.section import Problems, Section, SourceLocation

Kind = Literal["pairs", "triples", "negatives", "scores", "texts"]

_COLUMNS: dict[str, tuple[str, ...]] = {
    "pairs": ("query", "positive"),
    "triples": ("query", "positive", "negative"),
    "negatives": ("query", "positive", "negatives"),
    "scores": ("query", "documents", "scores"),
    "texts": ("text",),
}


class TrainingDataSettings(Section):
    """Training rows: files or one Delta table, all rows of one kind."""

    paths: list[SourceLocation] = Field(min_length=1)
    """files, folders, globs or URIs; a Delta source is one table"""
    format: Literal["auto", "parquet", "jsonl", "delta"] = "auto"
    """auto: by the file extension (.parquet, .jsonl, .ndjson, .json, text also compressed) or by _delta_log"""
    version: int | None = Field(None, ge=0)
    """version of a Delta source; default: the newest"""
    kind: Kind
    """pairs: query, positive; triples: query, positive, negative; negatives: query, positive, negatives (a list; empty
    or null: none); scores: query, documents (a list, the positive first), scores (of a teacher, one per document);
    texts: text"""
    columns: dict[str, str] = Field(default_factory=dict)
    """column of the data per field name, where they differ, for example {positive: pos}"""
    max_text_bytes: int = Field(100_000, ge=1)
    """maximum bytes of a text; rows with longer texts are quarantined"""
    max_bad_fraction: float = Field(0.05, ge=0, le=1)
    """maximum share of quarantined rows; the job fails above it"""

    def _problems(self) -> Problems:
        for ours, theirs in self.columns.items():
            if ours not in _COLUMNS[self.kind]:
                yield f"rows of kind {self.kind} have {', '.join(_COLUMNS[self.kind])}, not {ours}"
            if not theirs:
                yield f"give the name of the column of the data that holds {ours}"

    @property
    def fields(self) -> tuple[str, ...]:
        """Field names of the columns of this kind of row."""
        return _COLUMNS[self.kind]

    def column(self, field: str) -> str:
        """Return the column of the data for a field name."""
        return self.columns.get(field, field)


class DataSetSettings(TrainingDataSettings):
    """One of several data sets of a fine-tuning."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,40}$")
    """name in reports: letters, digits, _ and -; unique in the stage"""
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """proportional sampling: factor of the number of batches from this data set"""


class BatchSettings(Section):
    """Batch of one step. All numbers are of the global batch, for any number of workers."""

    queries: int = Field(32, ge=2)
    """queries per step, over all workers; each has one positive"""
    negatives: int = Field(0, ge=0)
    """hard negatives per query, sampled from those of its row; a row with fewer, or with none, has only in-batch
    negatives in the other places (margin_mse, kl: rows with none are quarantined)"""
    chunk: int | None = Field(None, ge=1)
    """texts per forward pass; needs the memory of a chunk and computes the gradient of the whole batch (gradient cache:
    one more forward pass); default: the whole batch at once"""
    accumulate: int = Field(1, ge=1)
    """number of parts into which a step is split, each with its own loss: negatives and the means of the regularizers
    are those of a part, and its FLOPS are never below those of the batch; chunk keeps both for the whole batch"""
    group_by_length: bool = True
    """batch texts of similar length; the order of batches stays random"""
    unique: bool = False
    """no two rows of a batch have the same query or positive; of rows that cannot be spread over 64 batches, the
    surplus is left out of the epoch, and random rows of the data take their places"""

    @field_validator("accumulate")
    def _divides(cls, accumulate: int, info: ValidationInfo) -> int:
        queries = info.data.get("queries", accumulate)
        if queries % accumulate or queries // accumulate < 2:
            raise ValueError(f"it has to split the {queries} queries of a batch into equal parts of two or more")
        return accumulate
