"""Compile functions with numba: on first use (seconds), cached next to the module or in ``NUMBA_CACHE_DIR``.

An image has compiled kernels in the folder ``LSR_PROD_KERNELS``, for the CPUs that its file ``cpus`` lists. They are
loaded from there, and the folder is never written: it may be read-only. The best CPU of the list that this one can run
is chosen; on a CPU below all of them, functions are compiled on first use.

The GIL is released while a compiled function runs.
"""

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding as llvm
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator

__all__ = ["CPUS_FILE", "KERNELS", "compiled", "shipped_cpu"]

log = logging.getLogger(__name__)

KERNELS = "LSR_PROD_KERNELS"
CPUS_FILE = "cpus"
# What a CPU has beyond the level before, in LLVM's names; https://gitlab.com/x86-psABIs/x86-64-ABI defines the levels.
_LEVELS = {
    "x86-64-v2": ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
    "x86-64-v4": ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the compiled function; its ``py_func`` is the plain function."""
    result: Any
    folder = os.environ.get(KERNELS)
    if folder and _use_shipped(folder):
        result = numba.njit(nogil=True)(function)
        # What numba's own `cache=True` does, with another class; tests/test_compiled.py notices if numba changes it.
        result._cache = _ShippedCache(function)  # type: ignore[no-untyped-call]
        return result  # type: ignore[no-any-return]
    try:
        result = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba: "no locator available", as neither this folder nor the user's cache is writable
        log.warning(
            "every process compiles the kernels because no folder for their cache is writable; set NUMBA_CACHE_DIR",
        )
        result = numba.njit(nogil=True)(function)
    return result  # type: ignore[no-any-return]


def shipped_cpu(folder: str) -> str | None:
    """Return the best CPU of a folder of kernels that this CPU can run; None: it can run none of them."""
    try:
        cpus = (Path(folder) / CPUS_FILE).read_text().split()
    except OSError:
        return None
    has, levels = llvm.get_host_cpu_features(), list(_LEVELS)
    able = [
        cpu
        for at, cpu in enumerate(levels)
        if cpu in cpus and all(has.get(feature) for level in levels[: at + 1] for feature in _LEVELS[level])
    ]
    return able[-1] if able else None


@functools.cache
def _use_shipped(folder: str) -> bool:
    """Make numba compile for the chosen CPU, as the kernels of the folder were; False if there is none."""
    cpu = shipped_cpu(folder)
    if cpu is None:
        log.warning("the image has no kernels for this CPU", extra={"fields": {"folder": folder}})
        return False
    config: Any = numba.config
    config.CPU_NAME, config.CPU_FEATURES = cpu, ""
    return True


class _Locator(UserProvidedCacheLocator):
    """Finds the compiled code of a function in the folder of the image, without a test whether one can write there."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)  # type: ignore[no-untyped-call]
        subpath = self.get_suitable_cache_subpath(py_file)  # type: ignore[no-untyped-call]
        self._cache_path = str(Path(os.environ[KERNELS]) / subpath)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "_Locator":
        return cls(py_func, py_file)


class _Shipped(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 - a list in numba


class _ShippedCache(FunctionCache):
    """Compiled code that an image was built with: it is loaded, never saved."""

    _impl_class = _Shipped

    def save_overload(self, sig: Any, data: Any) -> None:  # noqa: ARG002 - numba's interface
        log.warning(
            "a kernel was compiled that the image lacks",
            extra={"fields": {"kernel": f"{self._py_func.__module__}.{self._py_func.__qualname__}", "types": str(sig)}},
        )
