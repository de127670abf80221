"""Compiling by numba: on first use (seconds), cached beside the module or where ``NUMBA_CACHE_DIR`` says.

The GIL is released while a compiled function runs.
"""

import logging
from collections.abc import Callable
from typing import Any

import numba

__all__ = ["compiled"]

log = logging.getLogger(__name__)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled; its plain form stays in ``py_func``."""
    try:
        result: Callable[..., Any] = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba's "no locator available": neither this folder nor the user's cache can be written
        log.warning(
            "the kernels are compiled in every process, for there is no folder to cache them in; set NUMBA_CACHE_DIR",
        )
        result = numba.njit(nogil=True)(function)
    return result
