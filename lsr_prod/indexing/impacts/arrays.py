"""One-dimensional ``.npy`` files: appended to until the end, or created at full length and filled in any order."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

_HEADER = 128  # bytes of an .npy file before its items

__all__ = ["GrowingArray", "create_array", "map_array"]


class GrowingArray:
    """An ``.npy`` file to which items are appended; a context manager that writes the length at the end.

    Attributes:
        length: number of items so far.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], first: int | None = None) -> None:
        """Create the file.

        Args:
            path: a new file.
            dtype: type of the items.
            first: an item to append at once; None appends none.
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
        """Append items."""
        self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self.length += len(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.seek(0)
        self._write_header(self.length)
        assert self._file.tell() == self._data, "numpy pads the header: its size does not depend on the length"
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _write_header(self, length: int = 0) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def create_array(path: Path, dtype: np.dtype[Any], length: int) -> npt.NDArray[Any]:
    """Create an ``.npy`` file of zeros and map it; writes to the array go to the file."""
    if length == 0:  # an empty array cannot be mapped
        empty = np.zeros(0, dtype)
        with GrowingArray(path, dtype):
            return empty
    return np.asarray(np.lib.format.open_memmap(path, "w+", dtype, (length,)))


def map_array(path: Path) -> npt.NDArray[Any]:
    """Map an ``.npy`` file read-only; an empty array is read instead."""
    array = np.load(path, allow_pickle=False, mmap_mode="r" if path.stat().st_size > _HEADER else None)
    return np.asarray(array)
