"""Shared settings of Ray Data: no silently dropped rows, one progress bar per job."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.data import DataContext

__all__ = ["data_settings"]


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
        "raise_original_map_exception": True,  # another one would hide which error a function raised
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
