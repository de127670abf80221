"""Memory-mapped files that are verified page by page on the first read, and the ``.npy`` files among them.

The sha256 of a file can only be checked by reading the whole file. Therefore a shard has the sha256 of every page of
16 KiB of its mapped files, in ``page_digests.bin``: 32 bytes per page, files in the order of their names. The manifest
of the shard has the sha256 of that list, which is verified when the shard is opened; a page is verified when it is read
for the first time.

The ``.npy`` files have one dimension, and ``parse_npy_header`` reads their headers. numpy reads a header with
``ast.literal_eval``. In CPython 3.11 that raises SystemError where a garbage collection in the middle of it lets
another thread do the same (python/cpython issue 106905), and searchers open shards in threads.
"""

import ctypes
import io
import mmap
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from lsr_prod.errors import ArtifactError, DigestMismatchError
from lsr_prod.storage.formats.digests import FileDigest, parsing, read_file

PAGE_DIGESTS_FILE = "page_digests.bin"
PAGE = 1 << 14
HEADER_LIMIT = 1024  # bytes that hold a header of one dimension
_DIGEST = sha256().digest_size
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(\|[biu]1|[<>][iu][248]|[<>]f[248])', 'fortran_order': (?:False|True), "
    rb"'shape': \((\d{1,18}),\), \} *\n",
    re.DOTALL,
)
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def page_digests(folder: Path, names: Iterable[str]) -> bytes:
    """Return the content of ``page_digests.bin`` for the files ``names`` of ``folder``."""
    found = []
    for name in sorted(names):
        with (folder / name).open("rb") as file:
            while page := file.read(PAGE):
                found.append(sha256(page).digest())
    return b"".join(found)


class PageDigests:
    """The digests of the pages of some files, from a list that was verified."""

    def __init__(self, content: bytes, sizes: Mapping[str, int], place: str) -> None:
        """Number the pages."""
        self.first: dict[str, int] = {}
        self.pages = 0
        for name in sorted(sizes):
            self.first[name] = self.pages
            self.pages += -(-sizes[name] // PAGE)
        if len(content) != self.pages * _DIGEST:
            raise ArtifactError(f"{place} does not fit the files; build the shard again")
        self._content = content

    def fits(self, number: int, page: bytes | memoryview) -> bool:
        """Return whether the content of a page has its digest."""
        return sha256(page).digest() == self._content[number * _DIGEST : (number + 1) * _DIGEST]


class PiecewiseFile(io.RawIOBase):
    """A seekable file of known size that is read in pieces, by ``_read``."""

    def __init__(self, size: int, name: str) -> None:
        super().__init__()
        self._size, self._name, self._at = size, name, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a byte of the file."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(f"cannot seek to byte {start + offset} of {self._name}")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Read the next bytes."""
        stop = min(self._size, self._at + len(buffer))
        if stop <= self._at:
            return 0
        data = self._read(self._at, stop)
        if len(data) != stop - self._at:
            raise OSError(f"{self._name} ends {stop - self._at - len(data)} bytes before byte {stop}")
        buffer[: len(data)] = data
        self._at = stop
        return len(data)

    def _read(self, start: int, stop: int) -> bytes | memoryview:
        raise NotImplementedError


class VerifiedFile(PiecewiseFile):
    """A file that is read in pieces, without a map: every page is verified whenever it is read."""

    def __init__(self, source: BinaryIO, name: str, size: int, digests: PageDigests, place: str) -> None:
        """Read a file of a shard."""
        super().__init__(size, place)
        self._source, self._digests, self._first = source, digests, digests.first[name]

    def _read(self, start: int, stop: int) -> memoryview:
        page = start // PAGE
        first, end = page * PAGE, min(self._size, -(-stop // PAGE) * PAGE)
        self._source.seek(first)
        data = memoryview(self._source.read(end - first))
        for at in range(0, end - first, PAGE):
            if not self._digests.fits(self._first + page + at // PAGE, data[at : at + PAGE]):
                raise _damaged(self._name, first + at)
        return data[start - first : stop - first]

    def close(self) -> None:
        """Close the file."""
        self._source.close()
        super().close()


class MappedFiles:
    """The mapped files of a shard. Safe to share between threads."""

    def __init__(
        self,
        folder: Path,
        files: Sequence[FileDigest],
        mapped: Iterable[str],
        *,
        lazy: bool,
        scattered: Collection[str] = (),
    ) -> None:
        """Map the files without reading them; those that are ``scattered`` are read in small pieces anywhere."""
        self.folder = folder
        sizes = {file.path: file.size for file in files}
        for name, size in sizes.items():
            path = folder / name
            if not path.is_file() or path.stat().st_size != size:
                raise ArtifactError(
                    f"{path} is missing or has another size than its manifest says; build or fetch the index again"
                )
        names = sorted(mapped)
        if absent := {*names, *([PAGE_DIGESTS_FILE] if lazy else [])} - sizes.keys():
            raise ArtifactError(f"the manifest of {folder} lacks {sorted(absent)[0]}; build the shard again")
        self._bytes = {name: _map(folder / name) for name in names}
        for name in scattered:
            _expect_random_reads(self._bytes[name])
        self._digests: PageDigests | None = None
        self._verified = bytearray()
        if lazy:
            (listed,) = (file for file in files if file.path == PAGE_DIGESTS_FILE)
            covered = {name: sizes[name] for name in names}
            self._digests = PageDigests(read_file(folder, listed), covered, str(folder / PAGE_DIGESTS_FILE))
            self._verified = bytearray(self._digests.pages)

    def __contains__(self, name: str) -> bool:
        """Return whether a file is mapped."""
        return name in self._bytes

    def bytes_of(self, name: str) -> np.typing.NDArray[np.uint8]:
        """Return the mapped content of a file, uint8."""
        return self._bytes[name]

    def array(self, name: str) -> np.typing.NDArray[Any]:
        """Return a view of a mapped one-dimensional ``.npy``."""
        if name not in self._bytes:
            raise ArtifactError(f"{self.folder} lacks {name}; build the shard again")
        raw = self._bytes[name]
        self.verify(name, 0, min(len(raw), HEADER_LIMIT))
        with parsing(f"{self.folder / name} cannot be read", "build the shard again"):
            dtype, start = parse_npy_header(raw[:HEADER_LIMIT].tobytes(), len(raw))
        return raw[start:].view(dtype)

    @property
    def page_flags(self) -> bytearray | None:
        """1 for every page that was verified, 0 for the others; None: nothing is verified."""
        return None if self._digests is None else self._verified

    def pages_of(self, array: np.typing.NDArray[Any], name: str) -> tuple[int, int]:
        """Return the number of the first page of a file, and the byte of the first item of its array in it."""
        return (0 if self._digests is None else self._digests.first[name]), len(self._bytes[name]) - array.nbytes

    def verify_items(self, array: np.typing.NDArray[Any], name: str, start: int, stop: int) -> None:
        """Verify the pages of ``array[start:stop]``, where ``array`` is from ``array(name)``."""
        if self._digests is not None:
            size = array.itemsize
            head = len(self._bytes[name]) - len(array) * size
            self.verify(name, head + start * size, head + stop * size)

    def verify_rows(self, array: np.typing.NDArray[Any], name: str, starts: Any, stops: Any) -> None:
        """Verify the pages of ``array[starts[i]:stops[i]]`` for every i."""
        if self._digests is None or not len(starts):
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
        if self._digests is None or not size:  # Arrow keeps empty columns outside the map
            return
        start = address - self._bytes[name].ctypes.data
        if not 0 <= start <= start + size <= len(self._bytes[name]):
            raise ArtifactError(f"{self.folder / name} has a column outside the file; build the shard again")
        self.verify(name, start, start + size)

    def verify(self, name: str, start: int, stop: int) -> None:
        """Compare the pages of bytes ``start`` to ``stop`` with their digests, each page once."""
        if self._digests is None:
            return
        first, raw = self._digests.first[name], self._bytes[name].data
        for page in range(max(0, start) // PAGE, -(-min(stop, len(raw)) // PAGE)):
            if self._verified[first + page]:
                continue
            if not self._digests.fits(first + page, raw[page * PAGE : (page + 1) * PAGE]):
                raise _damaged(str(self.folder / name), page * PAGE)
            self._verified[first + page] = 1


def npy_bytes(array: np.typing.NDArray[Any]) -> bytes:
    """Return the content of an ``.npy`` file."""
    return npy_header(array.dtype, len(array)) + array.tobytes()


def npy_header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return the header of a file; its size does not depend on the length, since numpy pads it."""
    header = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()


def parse_npy(data: bytes, name: str, remedy: str) -> np.typing.NDArray[Any]:
    """Return a copy of the array of an ``.npy`` file; ``name`` and ``remedy`` are for the ArtifactError."""
    with parsing(f"{name} cannot be read", remedy):
        dtype, start = parse_npy_header(data[:HEADER_LIMIT], len(data))
    return np.frombuffer(data, dtype, offset=start).copy()


def parse_npy_header(head: bytes, size: int) -> tuple[np.dtype[Any], int]:
    """Read the header of a file of ``size`` bytes that begins with ``head``.

    Returns:
        The type of the items, and the number of bytes before them.

    Raises:
        ValueError: the file is not an array of numbers of one dimension, or has not the length that it states.
    """
    header = _HEADER.match(head)
    if header is None or int.from_bytes(head[8:10], "little") != header.end() - 10:
        raise ValueError("not an array of numbers of one dimension")
    dtype = np.dtype(header[1].decode())
    if int(header[2]) * dtype.itemsize != size - header.end():
        raise ValueError("not of the length that it states")
    return dtype, header.end()


def _damaged(place: str, byte: int) -> DigestMismatchError:
    return DigestMismatchError(f"{place} is damaged at byte {byte} or after; fetch or build the index again")


def _expect_random_reads(data: np.typing.NDArray[np.uint8]) -> None:
    """Tell the system not to read ahead: if memory is short, what it read in addition would displace other pages."""
    start = data.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE  # a map begins with a page
    if data.size:
        _madvise(start, data.ctypes.data + data.size - start, mmap.MADV_RANDOM)


def _map(path: Path) -> np.typing.NDArray[np.uint8]:
    if not path.stat().st_size:
        return np.zeros(0, np.uint8)
    # Arrow closes the file and keeps the map; Python's mmap keeps a descriptor, and many shards together have more
    # arrays than a process can have descriptors.
    with pa.memory_map(str(path)) as file:
        return np.frombuffer(file.read_buffer(), np.uint8)
