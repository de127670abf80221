"""Types of settings that hold a path or a URI; ``storage.location`` decides what they accept."""

from functools import partial
from typing import Annotated

from pydantic import AfterValidator

from lsr_prod.storage.location import location_problem, path_problem

__all__ = ["LocalPath", "Location", "SourceLocation"]


def _location(value: str, *, pattern: bool) -> str:
    problem = location_problem(value, pattern=pattern)
    if problem is not None:
        raise ValueError(problem)
    return value


def _path(value: str) -> str:
    problem = path_problem(value)
    if problem is not None:
        raise ValueError(problem)
    return value


Location = Annotated[str, AfterValidator(partial(_location, pattern=False))]
"""A local path, or the URI of a folder."""

SourceLocation = Annotated[str, AfterValidator(partial(_location, pattern=True))]
"""A file, folder or glob to read: a local one, or a URI."""

LocalPath = Annotated[str, AfterValidator(_path)]
"""A path of this machine."""
