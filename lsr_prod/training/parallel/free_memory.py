"""Return of free memory from the C library to the system, in training on a CPU."""

import ctypes
import platform
from functools import cache
from typing import Any


def return_free_memory() -> None:
    """Give free pages back to the system; does nothing without glibc.

    A step allocates tensors that live for different times. glibc keeps the gaps between them, so that a step occupies
    more memory than it uses. The pages are filled with zeros again when they are needed, which takes about 10 % of a
    step's time.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    if platform.libc_ver()[0] != "glibc":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
