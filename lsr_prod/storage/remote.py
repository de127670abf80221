"""Object stores for ``storage.Store``: one client per folder, and objects as Python files."""

import io
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lsr_prod.errors import MissingExtraError
from lsr_prod.storage.local import checked_chunks

if TYPE_CHECKING:
    from obstore import ReadableFile
    from obstore.store import ObjectStore

__all__ = ["PART_BYTES", "connect", "get_range", "is_remote_failure", "open_object", "put_parts"]

PART_BYTES = 8 << 20  # bytes of one request: the client's time limit is per request
_PARTS = 9000  # S3 allows 10,000 parts
_PARTS_AT_ONCE = 4

_CLIENT_OPTIONS = ("allow_http", "connect_timeout", "timeout", "proxy_url")


@lru_cache(maxsize=64)  # a client holds its connections: one per folder, not per call
def connect(uri: str, options: tuple[tuple[str, str], ...]) -> "ObjectStore":
    """Return the client of a folder; ``options`` as obstore and delta-rs name them.

    Raises:
        MissingExtraError: obstore is not installed.
    """
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise MissingExtraError("obstore", "jobs") from error
    # delta-rs takes one flat mapping; obstore takes the options of the HTTP client separately.
    client: dict[str, str | bool] = {key: value for key, value in options if key in _CLIENT_OPTIONS}
    config = {key: value for key, value in options if key not in _CLIENT_OPTIONS}
    if "allow_http" in client:
        client["allow_http"] = str(client["allow_http"]).lower() == "true"
    # The valid options depend on the store, which refuses unknown ones.
    store: ObjectStore = from_url(uri, config=config, client_options=client)  # type: ignore[call-overload]
    return store


def is_remote_failure(error: Exception) -> bool:
    """Return whether the client of an object store raised this error."""
    if not type(error).__module__.startswith("obstore"):
        return False
    from obstore.exceptions import BaseError

    return isinstance(error, BaseError)


def open_object(store: "ObjectStore", name: str) -> BinaryIO:
    """Open an object as a seekable file that is read in pieces of 1 MiB.

    Raises:
        FileNotFoundError: the object does not exist.
    """
    import obstore

    return io.BufferedReader(_RemoteFile(obstore.open_reader(store, name)), 1 << 20)


def get_range(store: "ObjectStore", name: str, start: int, length: int) -> bytes:
    """Return bytes of an object, in one request."""
    import obstore

    return bytes(obstore.get_range(store, name, start=start, length=length))


def put_parts(store: "ObjectStore", name: str, source: Path, sha256: str) -> None:
    """Send a large file in parts; the object appears when all parts are sent and have the sha256.

    Raises:
        DigestMismatchError: the file has another sha256; no object was created.
    """
    part = max(PART_BYTES, -(-source.stat().st_size // _PARTS))
    chunks = checked_chunks(source, sha256, part)
    store.put(name, chunks, chunk_size=part, max_concurrency=_PARTS_AT_ONCE, use_multipart=True)


class _RemoteFile(io.RawIOBase):
    """An object as a Python file: the reader of obstore implements only a part of the protocol."""

    def __init__(self, reader: "ReadableFile") -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._reader.tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._reader.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        try:
            data = bytes(self._reader.read(len(buffer)))
        except Exception as error:
            if not is_remote_failure(error):
                raise
            raise OSError(" ".join(str(error).split())[:300]) from error
        buffer[: len(data)] = data
        return len(data)
