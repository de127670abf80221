"""Base class of the sections of a deployment, and types of settings that several sections have."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from lsr_prod.storage.formats.values import TYPE_NAMES, AttributeType, is_type
from lsr_prod.storage.location import location_problem, path_problem, table_problem

Problems = Iterator[str]
"""Sentences that say what is wrong with a section."""


class Section(BaseModel):
    """Validated, immutable settings; an unknown key is an error.

    The string below a field is its description in ``--help`` and in the documentation.
    """

    # Most processes read a few of the sections: a validator is built when it is first used.
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True, defer_build=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Join the lines of each description."""
        for field in cls.model_fields.values():
            if field.description is not None:
                field.description = " ".join(field.description.split())

    def _problems(self) -> Problems:
        """Yield what is wrong with valid settings in their combination; the first sentence is the error."""
        yield from ()

    @model_validator(mode="after")
    def _without_problems(self) -> Self:
        for problem in self._problems():
            raise ValueError(problem)
        return self


def _checked(value: str, *, problem_of: Callable[[str], str | None]) -> str:
    if (problem := problem_of(value)) is not None:
        raise ValueError(problem)
    return value


Location = Annotated[str, AfterValidator(partial(_checked, problem_of=partial(location_problem, pattern=False)))]
"""A local path, or the URI of a folder."""

SourceLocation = Annotated[str, AfterValidator(partial(_checked, problem_of=location_problem))]
"""A file, folder or glob to read: a local one, or a URI."""

LocalPath = Annotated[str, AfterValidator(partial(_checked, problem_of=path_problem))]
"""A path of this machine."""

TableLocation = Annotated[str, AfterValidator(partial(_checked, problem_of=table_problem))]
"""The folder of a table, as ``Location``."""


def quarantine_uri(given: str | None, table: str) -> str:
    """Return the folder or URI of the quarantine of a table: the one that is set, or the default."""
    return given or f"{table.rstrip('/')}_quarantine"


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


Header = Annotated[list[str], Field(min_length=1), AfterValidator(_unique_names)]
"""Column names of files without a header row."""

Thresholds = Annotated[list[float], Field(min_length=1), AfterValidator(_shares_of_terms)]
"""Overlap thresholds: shares of the query terms, 0 to 1."""


def check_type(kind: str) -> str:
    """Refuse a type of a stored field that does not exist."""
    if not is_type(kind):
        raise ValueError(f"{kind} is no type; give {TYPE_NAMES}")
    return kind


FieldType = Annotated[AttributeType, AfterValidator(check_type)]
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
