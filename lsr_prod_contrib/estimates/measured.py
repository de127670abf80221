"""Measured runs: the ``RESULT`` lines of encode, index and reindex jobs."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lsr_prod.errors import ConfigError

_LINE = "RESULT "


class _Run(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


R = TypeVar("R", bound=_Run)


class EncodeRun(_Run):
    """Figures of an encode run; ``EncodeSummary`` describes them."""

    documents: int = Field(ge=1)
    rows_in: int = Field(ge=1)
    encoded: int = Field(ge=1)
    tokens: int = Field(ge=1)
    actors: int = Field(ge=1)
    threads_per_actor: int = Field(ge=1)
    seconds: float = Field(gt=0)
    encode_seconds: float = Field(gt=0)
    busy_share: float = Field(gt=0)
    source_bytes: int = Field(ge=1)
    table_bytes: int = Field(ge=1)

    @property
    def bytes_per_document(self) -> float:
        """Source bytes per row of the source."""
        return self.source_bytes / self.rows_in

    @property
    def tokens_per_document(self) -> float:
        """Tokens per document that went through the model."""
        return self.tokens / self.encoded


class IndexRun(_Run):
    """Figures of an index run that built all shards; ``IndexSummary`` describes them."""

    documents: int = Field(ge=1)
    documents_rebuilt: int = Field(ge=1)
    bytes_per_doc: float = Field(gt=0)
    seconds: float = Field(gt=0)


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """Runs by job."""

    encode: tuple[EncodeRun, ...]  # at least one
    index: IndexRun | None  # the last one that was given, or None


def read_runs(paths: Sequence[str]) -> MeasuredRuns:
    """Read the runs in files; the output of ``lsr-prod reindex`` holds one of each job."""
    encode: list[EncodeRun] = []
    index: list[IndexRun] = []
    for path in paths:
        for result in _results(path):
            figures = _of_job(result, "encode")
            if "tokens" in figures:
                encode.append(_parsed(EncodeRun, figures, path))
            figures = _of_job(result, "index")
            if "postings" in figures:
                index.append(_parsed(IndexRun, figures, path))
    if not encode:
        raise ConfigError("--run", "there is no RESULT of an encode job", "give the output of lsr-prod encode")
    if len({run.threads_per_actor for run in encode}) > 1:
        raise ConfigError("--run", "encode.threads_per_actor differs between the runs", "give runs with equal settings")
    return MeasuredRuns(tuple(encode), index[-1] if index else None)


def _results(path: str) -> list[Mapping[str, Any]]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("--run", f"{path} cannot be read ({error.strerror})", "give the output of a job") from error
    except UnicodeDecodeError as error:
        raise ConfigError("--run", f"{path} is not text", "give the output of a job") from error
    lines = [line.removeprefix(_LINE) for line in text.splitlines() if line.startswith(_LINE)] or [text]
    try:
        results = [json.loads(line) for line in lines]
    except ValueError as error:
        raise ConfigError(
            "--run", f"{path} has no line RESULT {{json}} and is not JSON", "give the output of a job"
        ) from error
    if not all(isinstance(result, dict) for result in results):
        raise ConfigError("--run", f"{path} is not a JSON object", "give the output of a job")
    return results


def _of_job(result: Mapping[str, Any], job: str) -> Mapping[str, Any]:
    """Return the figures of one job of a ``reindex``, or those of the job itself."""
    own = {name.removeprefix(f"{job}."): value for name, value in result.items() if name.startswith(f"{job}.")}
    return own or result


def _parsed(kind: type[R], figures: Mapping[str, Any], path: str) -> R:
    try:
        return kind.model_validate(figures)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(map(str, problem["loc"]))
        what = "is missing" if problem["type"] == "missing" else f"is {problem['input']!r}"
        raise ConfigError(
            "--run", f"{name} {what} in {path}", "give a run of this release that encoded or indexed documents"
        ) from error
