"""What every use of Ray Data here has in common: no row lost in silence, one bar a job, errors of ours as they were."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.data import DataContext
from ray.exceptions import RayError

from lsr_prod.errors import LsrError

__all__ = ["data_settings", "our_error"]


def our_error(error: BaseException | None) -> LsrError | None:
    """The error of ours that a task ended with, below Ray's wrappers; None if it is none of ours."""
    while error is not None:
        if isinstance(error, LsrError) and not isinstance(error, RayError):
            return error
        error = getattr(error, "cause", None) or error.__cause__
    return None


@contextmanager
def data_settings(**more: Any) -> Iterator[None]:
    """Ray Data's settings inside the block; those of other datasets in this process come back afterwards.

    Args:
        **more: further fields of Ray's ``DataContext``.
    """
    context = DataContext.get_current()
    wanted = {
        "enable_progress_bars": False,  # a job shows one bar of its own
        "print_on_execution_start": False,
        "max_errored_blocks": 0,  # an errored block would drop its rows without an exception
        **more,
    }
    before = {name: getattr(context, name) for name in wanted}
    for name, value in wanted.items():
        setattr(context, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)
