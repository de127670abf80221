"""Memory-mapped files that are verified page by page on the first read.

The sha256 of a file can only be checked by reading the whole file. Therefore a shard has a CRC-32 of every page of
64 KiB of its mapped files, in ``checksums.npy``: uint32, files in the order of their names. That array is verified when
the shard is opened, and every page when it is read for the first time.
"""

import io
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsr_prod.errors import ArtifactError, DigestMismatchError
from lsr_prod.formats.digest import FileDigest, verify_files

__all__ = ["CHECKSUMS_FILE", "PAGE", "MappedFiles", "page_checksums"]

CHECKSUMS_FILE = "checksums.npy"
PAGE = 1 << 16


def page_checksums(folder: Path, names: Iterable[str]) -> bytes:
    """Return the content of ``checksums.npy`` for the files ``names`` of ``folder``."""
    found = []
    for name in sorted(names):
        with (folder / name).open("rb") as file:
            while page := file.read(PAGE):
                found.append(zlib.crc32(page))
    content = io.BytesIO()
    np.save(content, np.array(found, dtype="<u4"))
    return content.getvalue()


class MappedFiles:
    """The mapped files of a shard. Safe to share between threads.

    Attributes:
        folder: the shard.
    """

    def __init__(self, folder: Path, files: Sequence[FileDigest], mapped: Iterable[str], *, lazy: bool) -> None:
        """Map the files without reading them.

        Args:
            folder: the shard.
            files: all files of its manifest.
            mapped: names of the files to map.
            lazy: verify every page on its first read; False: never.

        Raises:
            ArtifactError: a file is missing, or its size differs from the manifest.
            DigestMismatchError: the checksums are damaged (with ``lazy``).
        """
        self.folder = folder
        sizes = {file.path: file.size for file in files}
        for name, size in sizes.items():
            path = folder / name
            if not path.is_file() or path.stat().st_size != size:
                raise ArtifactError(
                    f"{path} is missing or has another size than its manifest says; build or fetch the index again"
                )
        names = sorted(mapped)
        if absent := {*names, *([CHECKSUMS_FILE] if lazy else [])} - sizes.keys():
            raise ArtifactError(f"the manifest of {folder} lacks {sorted(absent)[0]}; build the shard again")
        self._bytes = {name: _map(folder / name) for name in names}
        self._lazy = lazy
        self._first_page = {}
        pages = 0
        for name in names:
            self._first_page[name] = pages
            pages += -(-sizes[name] // PAGE)
        self._checksums: list[int] = []
        if lazy:
            verify_files(folder, [file for file in files if file.path == CHECKSUMS_FILE])
            checksums = np.load(folder / CHECKSUMS_FILE, allow_pickle=False)
            if checksums.shape != (pages,) or checksums.dtype != np.uint32:
                raise ArtifactError(f"{folder / CHECKSUMS_FILE} does not fit the files; build the shard again")
            self._checksums = checksums.tolist()
        self._verified = bytearray(pages)

    def __contains__(self, name: str) -> bool:
        """Return whether a file is mapped."""
        return name in self._bytes

    def bytes_of(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the mapped content of a file, uint8."""
        return self._bytes[name]

    def array(self, name: str) -> npt.NDArray[Any]:
        """Return a view of a mapped one-dimensional ``.npy``.

        Raises:
            ArtifactError: the file is not mapped, or is no such array.
        """
        if name not in self._bytes:
            raise ArtifactError(f"{self.folder} lacks {name}; build the shard again")
        raw = self._bytes[name]
        self.verify(name, 0, min(len(raw), 1024))
        head = io.BytesIO(raw[:1024].tobytes())
        try:
            if np.lib.format.read_magic(head) != (1, 0):
                raise ValueError("not of version 1.0")
            shape, _, dtype = np.lib.format.read_array_header_1_0(head)
            data = raw[head.tell() :]
            if dtype.hasobject or len(shape) != 1 or shape[0] * dtype.itemsize != len(data):
                raise ValueError("not one dimension of its length")
        except ValueError as error:
            raise ArtifactError(f"{self.folder / name} cannot be read ({error}); build the shard again") from error
        return data.view(dtype)

    def verify_items(self, array: npt.NDArray[Any], name: str, start: int, stop: int) -> None:
        """Verify the pages of ``array[start:stop]``, where ``array`` is from ``array(name)``."""
        if self._lazy:
            size = array.itemsize
            head = len(self._bytes[name]) - len(array) * size
            self.verify(name, head + start * size, head + stop * size)

    def verify_rows(self, array: npt.NDArray[Any], name: str, starts: Any, stops: Any) -> None:
        """Verify the pages of ``array[starts[i]:stops[i]]`` for every i.

        Args:
            array: the result of ``array(name)``.
            name: name of the file.
            starts: int64 [n].
            stops: int64 [n].
        """
        if not self._lazy or not len(starts):
            return
        size = array.itemsize
        head = len(self._bytes[name]) - len(array) * size
        first, last = (starts * size + head) // PAGE, (np.maximum(stops, starts + 1) * size + head - 1) // PAGE
        last = np.clip(last, 0, max(0, (len(self._bytes[name]) - 1) // PAGE))
        for page in np.unique(np.concatenate([np.minimum(first, last), last])).tolist():
            self.verify(name, page * PAGE, page * PAGE + 1)
        for row in np.flatnonzero(last - first > 1).tolist():
            self.verify(name, int(first[row]) * PAGE, (int(last[row]) + 1) * PAGE)

    def verify_buffer(self, name: str, address: int, size: int) -> None:
        """Verify the pages of a memory range inside the map of a file."""
        start = address - self._bytes[name].ctypes.data
        self.verify(name, start, start + size)

    def verify(self, name: str, start: int, stop: int) -> None:
        """Compare the pages of bytes ``start`` to ``stop`` with their checksums, each page once.

        Raises:
            DigestMismatchError: a page is damaged.
        """
        if not self._lazy:
            return
        first, raw = self._first_page[name], self._bytes[name]
        for page in range(max(0, start) // PAGE, -(-min(stop, len(raw)) // PAGE)):
            if self._verified[first + page]:
                continue
            if zlib.crc32(raw[page * PAGE : (page + 1) * PAGE].data) != self._checksums[first + page]:
                raise DigestMismatchError(
                    f"{self.folder / name} is damaged at byte {page * PAGE} or after; fetch or build the index again"
                )
            self._verified[first + page] = 1


def _map(path: Path) -> npt.NDArray[np.uint8]:
    if not path.stat().st_size:
        return np.zeros(0, np.uint8)
    # Arrow closes the file and keeps the map; Python's mmap keeps a descriptor, and many shards together have more
    # arrays than a process can have descriptors.
    with pa.memory_map(str(path)) as file:
        return np.frombuffer(file.read_buffer(), np.uint8)
