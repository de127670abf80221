"""Compile functions with numba: on first use (seconds), cached next to the module or in ``NUMBA_CACHE_DIR``.

The GIL is released while a compiled function runs.
"""

import logging
from collections.abc import Callable
from typing import Any

import numba

__all__ = ["compiled"]

log = logging.getLogger(__name__)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the compiled function; its ``py_func`` is the plain function."""
    try:
        result: Callable[..., Any] = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba: "no locator available", as neither this folder nor the user's cache is writable
        log.warning(
            "every process compiles the kernels because no folder for their cache is writable; set NUMBA_CACHE_DIR",
        )
        result = numba.njit(nogil=True)(function)
    return result
