"""Object stores as ``storage.Store`` needs them: one client a folder, and objects behind Python's file protocol."""

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

PART_BYTES = 8 << 20  # one request: the client's time limit is for each
_PARTS = 9000  # S3 takes 10,000 parts
_PARTS_AT_ONCE = 4

_CLIENT_OPTIONS = ("allow_http", "connect_timeout", "timeout", "proxy_url")


@lru_cache(maxsize=64)  # a client holds its connections: one for a folder, not one for a call
def connect(uri: str, options: tuple[tuple[str, str], ...]) -> "ObjectStore":
    """The client of a folder; ``options`` as obstore and delta-rs name them.

    Raises:
        MissingExtraError: obstore is not installed.
    """
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise MissingExtraError("obstore", "jobs") from error
    # delta-rs takes one flat mapping; obstore wants the HTTP client's options apart.
    client: dict[str, str | bool] = {key: value for key, value in options if key in _CLIENT_OPTIONS}
    config = {key: value for key, value in options if key not in _CLIENT_OPTIONS}
    if "allow_http" in client:
        client["allow_http"] = str(client["allow_http"]).lower() == "true"
    # Which options exist depends on the store; it refuses those it does not know.
    store: ObjectStore = from_url(uri, config=config, client_options=client)  # type: ignore[call-overload]
    return store


def is_remote_failure(error: Exception) -> bool:
    """Whether an object store's client raised this."""
    if not type(error).__module__.startswith("obstore"):
        return False
    from obstore.exceptions import BaseError

    return isinstance(error, BaseError)


def open_object(store: "ObjectStore", name: str) -> BinaryIO:
    """An object as a seekable file, read in pieces of 1 MiB.

    Raises:
        FileNotFoundError: there is no such object.
    """
    import obstore

    return io.BufferedReader(_RemoteFile(obstore.open_reader(store, name)), 1 << 20)


def get_range(store: "ObjectStore", name: str, start: int, length: int) -> bytes:
    """Bytes of an object, in one request."""
    import obstore

    return bytes(obstore.get_range(store, name, start=start, length=length))


def put_parts(store: "ObjectStore", name: str, source: Path, sha256: str) -> None:
    """Send a large file in parts; the object appears once all of them are there and have the sha256.

    Raises:
        DigestMismatchError: the file has another sha256; no object was made.
    """
    part = max(PART_BYTES, -(-source.stat().st_size // _PARTS))
    chunks = checked_chunks(source, sha256, part)
    store.put(name, chunks, chunk_size=part, max_concurrency=_PARTS_AT_ONCE, use_multipart=True)


class _RemoteFile(io.RawIOBase):
    """An object behind Python's file protocol, which obstore's reader has only half of."""

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
