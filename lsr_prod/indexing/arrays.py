"""``.npy`` files of one dimension: grown by appending, or made at their length and filled in any order."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

_HEADER = 128  # bytes of an .npy before its items

__all__ = ["GrowingArray", "filled_array", "mapped_array"]


class GrowingArray:
    """An ``.npy`` whose length is known at the end only; a context manager.

    Attributes:
        length: items so far.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], first: int | None = None) -> None:
        """Open a new file.

        Args:
            path: the file.
            dtype: of the items.
            first: an item that stands before all that are appended.
        """
        self.path = path
        self._file = path.open("xb")
        self._dtype = dtype
        self.length = 0
        self._write_header()
        self._data = self._file.tell()
        if first is not None:
            self.append(np.array([first]))

    def append(self, values: npt.NDArray[Any]) -> None:
        """Write items behind the last one."""
        self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self.length += len(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.seek(0)
        self._write_header(self.length)
        assert self._file.tell() == self._data, "numpy pads the header, so that every length fits into its place"
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _write_header(self, length: int = 0) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def filled_array(path: Path, dtype: np.dtype[Any], length: int) -> npt.NDArray[Any]:
    """A new mapped ``.npy`` of zeros; what is written to the array goes to the file."""
    if length == 0:  # nothing can be mapped
        empty = np.zeros(0, dtype)
        with GrowingArray(path, dtype):
            return empty
    return np.asarray(np.lib.format.open_memmap(path, "w+", dtype, (length,)))


def mapped_array(path: Path) -> npt.NDArray[Any]:
    """A mapped ``.npy``, read only; one without items is read."""
    array = np.load(path, allow_pickle=False, mmap_mode="r" if path.stat().st_size > _HEADER else None)
    return np.asarray(array)
