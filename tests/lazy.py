"""Modules that are imported on first use: each process of a run collects every file, but runs few of them."""

from importlib import import_module
from typing import Any

__all__ = ["LazyModule"]


class LazyModule:
    """Stand-in for the module ``name`` that imports it when the first of its names is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks each name of a file for private attributes during collection
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
