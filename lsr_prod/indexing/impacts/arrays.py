"""One-dimensional ``.npy`` files: appended to until the end, or created at full length and filled in any order."""

import io
import os
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

_HEADER = 128  # bytes of an .npy file before its items


class GrowingArray:
    """An ``.npy`` file to which items are appended; a context manager that writes the length at the end."""

    def __init__(self, path: Path, dtype: np.dtype[Any], first: int | None = None) -> None:
        """Create the file."""
        self.path = path
        self._file = path.open("xb", buffering=0)  # with a buffer, an array that is given up would fail again later
        weakref.finalize(self, self._file.close)  # of an array that is given up
        self._dtype = dtype
        self.length = 0
        _write(self._file, _header(dtype, 0))
        self._data = self._file.tell()
        if first is not None:
            self.append(np.array([first]))

    def append(self, values: npt.NDArray[Any]) -> None:
        """Append items."""
        _write(self._file, values.astype(self._dtype, copy=False).tobytes())
        self.length += len(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            self._file.seek(0)
            _write(self._file, _header(self._dtype, self.length))
            assert self._file.tell() == self._data
            os.fsync(self._file.fileno())


def create_array(path: Path, dtype: np.dtype[Any], length: int) -> npt.NDArray[Any]:
    """Create an ``.npy`` file of zeros and map it; writes to the array go to the file.

    The disk has room for the whole file before it is mapped: a write to a page of a map for which there is no room
    would end the process with SIGBUS.
    """
    if length == 0:  # an empty array cannot be mapped
        empty = np.zeros(0, dtype)
        with GrowingArray(path, dtype):
            return empty
    with path.open("xb", buffering=0) as file:
        _write(file, _header(dtype, length))
        os.posix_fallocate(file.fileno(), file.tell(), length * dtype.itemsize)
    return np.asarray(np.load(path, mmap_mode="r+", allow_pickle=False))


def map_array(path: Path) -> npt.NDArray[Any]:
    """Map an ``.npy`` file read-only; an empty array is read instead."""
    array = np.load(path, allow_pickle=False, mmap_mode="r" if path.stat().st_size > _HEADER else None)
    return np.asarray(array)


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return the header of a file; its size does not depend on the length, since numpy pads it."""
    header = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()


def _write(file: io.FileIO, data: bytes) -> None:
    """Write all bytes to an unbuffered file: the system may write a part of them first."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
