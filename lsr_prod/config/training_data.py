"""What a stage trains on, and in what batches."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from lsr_prod.config.section import Section

__all__ = ["BatchSettings", "TrainingDataSettings"]

Kind = Literal["pairs", "triples", "negatives", "scores", "texts"]

_COLUMNS: dict[str, tuple[str, ...]] = {
    "pairs": ("query", "positive"),
    "triples": ("query", "positive", "negative"),
    "negatives": ("query", "positive", "negatives"),
    "scores": ("query", "documents", "scores"),
    "texts": ("text",),
}


class TrainingDataSettings(Section):
    """Rows to train on: files or one Delta table, every row of one kind."""

    paths: list[str] = Field(min_length=1, description="files, folders, globs or URIs; a Delta source is one table")
    format: str = Field(
        "auto", description="auto goes by the ending (.parquet, .jsonl, .ndjson, also .gz or .zst) or by _delta_log"
    )
    version: int | None = Field(None, ge=0, description="version of a Delta source; unset: the newest")
    kind: Kind = Field(
        description="pairs: query, positive; triples: query, positive, negative; negatives: query, positive, "
        "negatives (a list); scores: query, documents (a list, the positive first), scores (a teacher's, one each); "
        "texts: text"
    )
    columns: dict[str, str] = Field(
        default_factory=dict, description="names of ours -> columns of the data where they differ, e.g. {positive: pos}"
    )
    max_text_bytes: int = Field(100_000, ge=1, description="longest text in bytes; a row with a longer one is bad")
    max_bad_fraction: float = Field(0.05, ge=0, le=1, description="share of quarantined rows above which the job stops")

    @model_validator(mode="after")
    def _columns_of_kind(self) -> "TrainingDataSettings":
        for ours, theirs in self.columns.items():
            if ours not in _COLUMNS[self.kind]:
                raise ValueError(f"rows of kind {self.kind} have {', '.join(_COLUMNS[self.kind])}, not {ours}")
            if not theirs:
                raise ValueError(f"name the column of the data that is {ours}")
        return self

    @property
    def fields(self) -> tuple[str, ...]:
        """Our names of every column of this kind of row."""
        return _COLUMNS[self.kind]

    def column(self, field: str) -> str:
        """What the data calls one of our fields."""
        return self.columns.get(field, field)


class BatchSettings(Section):
    """What one step trains on. All numbers are of the global batch, whatever the number of workers."""

    queries: int = Field(32, ge=2, description="queries of a step, over all workers; each brings its positive")
    negatives: int = Field(
        0, ge=0, description="hard negatives of a query, drawn from those of its row; a row with fewer repeats some"
    )
    chunk: int | None = Field(
        None,
        ge=1,
        description="texts of one forward pass; memory is that of a chunk, and the gradient that of the whole batch "
        "(gradient cache: one more forward pass). Unset: the whole batch at once",
    )
    accumulate: int = Field(
        1,
        ge=1,
        description="parts into which a step is cut, each with a loss of its own: negatives are those of a part, and "
        "so are the means of the regularisers, whose flops are never below those of the batch. chunk keeps both "
        "those of the batch",
    )
    group_by_length: bool = Field(True, description="batches of texts of similar length; the order stays random")

    @field_validator("accumulate")
    @classmethod
    def _divides(cls, accumulate: int, info: ValidationInfo) -> int:
        queries = info.data.get("queries", accumulate)
        if queries % accumulate or queries // accumulate < 2:
            raise ValueError(f"it has to cut the {queries} queries of a batch into equal parts of two or more")
        return accumulate
