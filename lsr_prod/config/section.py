"""Base class of the sections of a deployment, types of their fields, and settings that several sections have."""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from lsr_prod.storage.formats.stored_values import TYPE_NAMES, AttributeType, is_type
from lsr_prod.storage.location import location_problem, path_problem, table_problem

Problems = Iterator[str]
"""Sentences that say what is wrong with a section."""

Kind = Literal["pairs", "triples", "negatives", "scores", "texts"]

_COLUMNS: dict[str, tuple[str, ...]] = {
    "pairs": ("query", "positive"),
    "triples": ("query", "positive", "negative"),
    "negatives": ("query", "positive", "negatives"),
    "scores": ("query", "documents", "scores"),
    "texts": ("text",),
}


class Section(BaseModel):
    """Validated, immutable settings; an unknown key is an error.

    The string below a field is its description in ``--help`` and in the documentation.
    """

    # Most processes read a few of the sections: a validator is built when it is first used.
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, defer_build=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Take the descriptions of the fields from the strings below them."""
        for name, text in _strings_below_fields(cls.__module__).get(cls.__qualname__, {}).items():
            cls.model_fields[name].description = text

    def _problems(self) -> Problems:
        """Yield what is wrong with valid settings in their combination; the first sentence is the error."""
        yield from ()

    def _unread(self, *names: str, need: str, met: bool) -> Problems:
        """Yield a problem for each of these settings that differs from its default, unless the need is met.

        A default is no problem: settings that were written with all their fields can be read back.
        """
        for name in names:
            if not met and getattr(self, name) != type(self).model_fields[name].default:
                yield f"{name} has no effect without {need}; set that, or remove {name}"

    @model_validator(mode="after")
    def _without_problems(self) -> Self:
        for problem in self._problems():
            raise ValueError(problem)
        return self


@cache
def _strings_below_fields(module: str) -> dict[str, dict[str, str]]:
    """Return the strings by class and field; pydantic would read the file of a module again for each of its classes."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):  # without sources, or in an interactive session, there are no descriptions
        return {}
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = {
                field.target.id: " ".join(text.value.value.split())
                for field, text in pairwise(node.body)
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            }  # fmt: skip
    return found


def _checked(value: str, *, problem_of: Callable[[str], str | None]) -> str:
    if (problem := problem_of(value)) is not None:
        raise ValueError(problem)
    return value


def _unique_names(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("column names must be unique")
    return names


def _shares_of_terms(thresholds: list[float]) -> list[float]:
    for threshold in thresholds:
        if not 0 <= threshold <= 1:
            raise ValueError(f"{threshold} is not a share of the query terms; give values from 0 to 1")
    return thresholds


def _known_width(bits: int) -> int:
    if bits not in (4, 8, 16):
        raise ValueError("give 4, 8 or 16")
    return bits


def check_type(kind: str) -> str:
    """Refuse a type of a stored field that does not exist."""
    if not is_type(kind):
        raise ValueError(f"{kind} is no type; give {TYPE_NAMES}")
    return kind


Location = Annotated[str, AfterValidator(partial(_checked, problem_of=partial(location_problem, pattern=False)))]
"""A local path, or the URI of a folder."""

SourceLocation = Annotated[str, AfterValidator(partial(_checked, problem_of=location_problem))]
"""A file, folder or glob to read: a local one, or a URI."""

LocalPath = Annotated[str, AfterValidator(partial(_checked, problem_of=path_problem))]
"""A path of this machine."""

TableLocation = Annotated[str, AfterValidator(partial(_checked, problem_of=table_problem))]
"""The folder of a table, as ``Location``."""

Header = Annotated[list[str], Field(min_length=1), AfterValidator(_unique_names)]
"""Column names of files without a header row."""

Thresholds = Annotated[list[float], Field(min_length=1), AfterValidator(_shares_of_terms)]
"""Overlap thresholds: shares of the query terms, 0 to 1."""

FieldType = Annotated[AttributeType, AfterValidator(check_type)]
"""Type of a stored field."""

ImpactBits = Annotated[int, AfterValidator(_known_width)]
"""Bits per impact of a table."""


class JudgedCollection(Section):
    """Documents, queries and relevance judgments of a collection."""

    corpus: Location = Field(min_length=1)
    """file or URI, JSONL of the documents: _id, title, text (BEIR)"""
    queries: Location = Field(min_length=1)
    """file or URI, queries as in evaluate"""
    qrels: Location = Field(min_length=1)
    """file or URI, relevance judgments as in evaluate"""
    documents: int | None = Field(None, ge=1)
    """maximum number of documents: those with judgments first, then others; default: all"""
    max_queries: int | None = Field(None, ge=1)
    """maximum number of queries; default: all with judgments"""


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


def _only_texts(data: TrainingDataSettings) -> TrainingDataSettings:
    if data.kind != "texts":
        raise ValueError(f"plain text is required: its kind has to be texts, and is {data.kind}")
    return data


TextData = Annotated[TrainingDataSettings, AfterValidator(_only_texts)]
"""Plain text: a data set of kind texts."""


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
    are those of a part. If all parts have equally many documents, the FLOPS are never below those of the batch; if rows
    lack hard negatives, the documents of a smaller part count more. chunk keeps both for the whole batch"""
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


def quarantine_uri(given: str | None, table: str) -> str:
    """Return the folder or URI of the quarantine of a table: the one that is set, or the default."""
    return given or f"{table.rstrip('/')}_quarantine"
