"""Shared settings of Ray Data: no silently dropped rows, one progress bar per job; errors below Ray's wrappers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.data import DataContext
from ray.exceptions import RayError

from lsr_prod.errors import LsrError

__all__ = ["data_settings", "our_error"]


def our_error(error: BaseException | None) -> LsrError | None:
    """Return the ``LsrError`` that a task raised, below Ray's wrappers, or None for another error."""
    while error is not None:
        if isinstance(error, LsrError) and not isinstance(error, RayError):
            return error
        error = getattr(error, "cause", None) or error.__cause__
    return None


@contextmanager
def data_settings(**more: Any) -> Iterator[None]:
    """Change the settings of Ray Data inside the block and restore them afterwards.

    Args:
        **more: further fields of ``DataContext``.
    """
    context = DataContext.get_current()
    wanted = {
        "enable_progress_bars": False,  # a job shows its own bar
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
