"""Types of settings that hold a path or a URI; ``storage.location`` decides what they accept."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from pydantic import AfterValidator

from lsr_prod.storage.location import location_problem, path_problem, table_problem


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
