"""Plain bytes of compressed files, in bounded memory, with the place up to which a damaged file is decoded."""

import bz2
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any, BinaryIO, Protocol

import pyarrow as pa

from lsr_prod.corpus.pinned_file import DamagedFileError

_BLOCK = 1 << 20
_PULL = 1 << 14  # a damaged file is decoded up to the beginning of such a piece, or further
_LARGEST_READ = 1 << 16  # Arrow returns the whole block or raises: small reads keep more good rows
_CHECKSUMS = (
    "incorrect data check",
    "incorrect length check",
    "doesn't match checksum",
    "Checksum_invalid",  # of LZ4
    "Truncated compressed stream",
)


class Readable(Protocol):
    """Methods of a file that ``lines`` uses; ``seek`` only if a range starts in the middle."""

    def read1(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""
        ...

    def seek(self, offset: int, /) -> int:
        """Set the position to a byte."""
        ...


@contextmanager
def decompressed(handle: BinaryIO, file_format: str) -> Iterator["Readable | Decompressor"]:
    """Open the plain bytes of a file, whose format ends in its compression."""
    ending = f".{file_format.rpartition('.')[2]}"
    if ending in _MEMBERS:
        yield _Members(handle, ending)
    elif ending in _ARROW_CODECS:
        pulled = _Pulled(handle)
        with pa.CompressedInputStream(pa.PythonFile(pulled, "r"), _ARROW_CODECS[ending]) as stream:
            yield _ArrowStream(stream, pulled)
    elif ending == ".zip":
        with _only_member(handle) as (stored, info):
            yield _Zip(stored, info)
    else:
        yield handle  # type: ignore[misc]  # every binary file of Python's own has read1


class Decompressor:
    """Readable plain bytes of a compressed file.

    Attributes:
        decoded: compressed bytes, from the beginning of the file, whose plain bytes were returned. After a checksum
            that does not match, or that is missing because the file was cut, it is the beginning of the bytes that the
            checksum covers: any of them may be wrong, and the number of missing ones is unknown.
        plain: number of plain bytes that were returned.
    """

    decoded = 0
    plain = 0

    def read1(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""
        raise NotImplementedError

    def packed(self, plain: int) -> int:
        """Return about how many compressed bytes hold this many plain bytes, at the mean ratio so far."""
        return -(-plain * self.decoded // max(self.plain, 1))

    def seek(self, offset: int, /) -> int:
        """Refuse to set a position."""
        raise OSError(f"cannot seek to byte {offset} of a compressed file")


_MEMBERS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(31),  # window bits: a gzip header and its checksum
    ".bz2": bz2.BZ2Decompressor,
    ".xz": partial(lzma.LZMADecompressor, memlimit=1 << 28),  # the file declares what it needs
}
_ARROW_CODECS = {".zst": "zstd", ".lz4": "lz4"}


class _Members(Decompressor):
    """Members of a file, one after the other; zeros between and after them are padding."""

    def __init__(self, handle: BinaryIO, ending: str) -> None:
        self._handle, self._ending = handle, ending
        self._decoder: Any = None
        self._held, self._pulled, self._member = b"", 0, 0

    def read1(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""
        while self._decoder is not None or self._begin_member():
            hungry = getattr(self._decoder, "needs_input", True)  # that of zlib holds no input
            data = self._held or (self._pull() if hungry else b"")
            try:
                plain: bytes = self._decoder.decompress(data, size)
            except (zlib.error, lzma.LZMAError, OSError) as error:
                # zlib alone says whether a checksum is wrong, and hands out nothing that is known to be
                if self._ending != ".gz" or any(checksum in str(error) for checksum in _CHECKSUMS):
                    self.decoded = self._member
                if isinstance(error, lzma.LZMAError):  # the decoders of other formats raise an OSError or a zlib.error
                    raise OSError(f"xz: {error}") from error
                raise
            self._held = getattr(self._decoder, "unconsumed_tail", b"")
            if self._decoder.eof:
                self._held, self._decoder = self._decoder.unused_data, None
            elif hungry and not data and not plain:
                self.decoded = self._member
                raise EOFError(f"the file ends inside a member of {self._ending[1:]}")
            if plain or self._decoder is None:
                self.decoded = self._pulled - len(self._held)
            if plain:
                self.plain += len(plain)
                return plain
        return b""

    def _begin_member(self) -> bool:
        if self._pulled:
            self._held = self._held.lstrip(b"\0")
        while not self._held:
            if not (data := self._pull()):
                return False
            self._held = data.lstrip(b"\0") if self._pulled > len(data) else data
        self._member = self._pulled - len(self._held)
        self._decoder = _MEMBERS[self._ending]()
        return True

    def _pull(self) -> bytes:
        data = self._handle.read(_PULL)
        self._pulled += len(data)
        return data


class _Pulled(io.RawIOBase):
    """Compressed bytes in small pieces; ``began`` is the place of the newest piece."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self.began = self._end = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Return up to ``size`` bytes."""
        data = self._handle.read(_PULL if size < 0 else min(size, _PULL))
        if data:
            self.began = self._end
            self._end += len(data)
        return data


class _ArrowStream(Decompressor):
    def __init__(self, stream: pa.NativeFile, pulled: _Pulled) -> None:
        self._stream, self._pulled = stream, pulled

    def read1(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""
        try:
            plain = bytes(self._stream.read(min(size, _LARGEST_READ)))
        except OSError as error:
            if any(checksum in str(error) for checksum in _CHECKSUMS):
                self.decoded = 0  # the beginning of the frame is not known
            raise
        self.decoded = self._pulled.began
        self.plain += len(plain)
        return plain


@contextmanager
def _only_member(handle: BinaryIO) -> Iterator[tuple[IO[bytes], zipfile.ZipInfo]]:
    try:
        archive = zipfile.ZipFile(handle)
        members = [member for member in archive.infolist() if not member.is_dir()]
        if len(members) != 1:
            raise DamagedFileError(f"the archive holds {len(members)} files; unpack it, or pack each file by itself", 0)
        if members[0].compress_type == zipfile.ZIP_LZMA:  # it declares the memory that it needs
            raise NotImplementedError("LZMA")
        member = archive.open(members[0])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:  # a password is a RuntimeError
        raise DamagedFileError(f"the archive cannot be read ({error})", 0) from error
    with archive, member:
        yield member, members[0]


class _Zip(Decompressor):
    def __init__(self, member: Any, info: zipfile.ZipInfo) -> None:
        self._member, self._info = member, info

    def read1(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""
        try:
            plain: bytes = self._member.read1(min(size, _BLOCK))
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
            self.decoded = 0  # the checksum covers all
            raise OSError(f"zip: {error}") from error
        self.plain += len(plain)
        self.decoded = self._info.compress_size * self.plain // max(self._info.file_size, 1)
        return plain
