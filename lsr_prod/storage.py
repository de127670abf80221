"""Folders and object stores behind one set of verbs: the only module that opens a path that jobs write to.

A URI is a local folder, or ``s3://``, ``gs://``, ``az://`` (through obstore). What the protocols need from a store is
one thing: create an object only if it is absent. Readers of finished artefacts get a local folder and map it.
"""

import hashlib
import io
import os
import uuid
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lsr_prod.errors import ConfigError, MissingExtraError
from lsr_prod.formats.digest import digest_path

if TYPE_CHECKING:
    from obstore import ReadableFile
    from obstore.store import ObjectStore

__all__ = ["Store", "is_remote", "require_exists", "store_digest"]

_CLIENT_OPTIONS = ("allow_http", "connect_timeout", "timeout", "proxy_url")
_REMOTE = ("s3://", "gs://", "az://", "abfss://")


def is_remote(uri: str) -> bool:
    """Whether ``uri`` names an object store; everything else is a local path."""
    return uri.startswith(_REMOTE)


@dataclass(frozen=True, slots=True)
class Store:
    """A folder, local or remote.

    Attributes:
        uri: the folder. A local one is made when something is written.
        options: options of the object store, as obstore and delta-rs name them.
    """

    uri: str
    options: dict[str, str] = field(default_factory=dict)

    @property
    def delta_options(self) -> dict[str, str] | None:
        """``storage_options`` for delta-rs."""
        return {key.upper(): value for key, value in self.options.items()} if is_remote(self.uri) else None

    @property
    def location(self) -> str:
        """The folder as delta-rs wants it: an absolute path, or the URI without a trailing slash."""
        return self.uri.rstrip("/") if is_remote(self.uri) else str(Path(self.uri).absolute())

    def child(self, name: str) -> "Store":
        """A folder inside this one."""
        return Store(f"{self.uri.rstrip('/')}/{_safe(name)}", self.options)

    def put_new(self, name: str, data: bytes) -> bool:
        """Create an object with all of ``data``, durably, unless its name is taken.

        Args:
            name: path inside the folder, with forward slashes.
            data: the whole content.

        Returns:
            True if this call created it; False if it was there, untouched.
        """
        if not is_remote(self.uri):
            target = Path(self.uri) / _safe(name)
            return _link_new(target, data)
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            self._remote().put(_safe(name), data, mode="create")
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def get(self, name: str) -> bytes | None:
        """The content of an object, or None if there is none."""
        if not is_remote(self.uri):
            path = Path(self.uri) / _safe(name)
            return path.read_bytes() if path.is_file() else None
        try:
            return bytes(self._remote().get(_safe(name)).bytes())
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int | None:
        """Bytes of an object, or None if there is none."""
        if not is_remote(self.uri):
            path = Path(self.uri) / _safe(name)
            return path.stat().st_size if path.is_file() else None
        try:
            return int(self._remote().head(_safe(name))["size"])
        except FileNotFoundError:
            return None

    def etag(self, name: str) -> str:
        """What the object store changes whenever the object's content changes.

        Raises:
            FileNotFoundError: there is no such object.
        """
        return str(self._remote().head(_safe(name))["e_tag"])

    def open_reader(self, name: str) -> BinaryIO:
        """An object as a seekable file, read in pieces.

        Raises:
            FileNotFoundError: there is no such object.
        """
        if not is_remote(self.uri):
            return (Path(self.uri) / _safe(name)).open("rb")
        import obstore

        return io.BufferedReader(_RemoteFile(obstore.open_reader(self._remote(), _safe(name))), 1 << 20)

    def names(self, prefix: str = "") -> list[str]:
        """Names of all objects below the folder ``prefix``, sorted."""
        if not is_remote(self.uri):
            root = Path(self.uri)
            below = root / _safe(prefix) if prefix else root
            return sorted(path.relative_to(root).as_posix() for path in below.rglob("*") if path.is_file())
        batches = self._remote().list(prefix=prefix or None)
        return sorted(str(entry["path"]) for batch in batches for entry in batch)

    def _remote(self) -> "ObjectStore":
        return _connect(self.uri, tuple(sorted(self.options.items())))


@lru_cache(maxsize=64)  # a client holds its connections: one for a folder, not one for a call
def _connect(uri: str, options: tuple[tuple[str, str], ...]) -> "ObjectStore":
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
        data = bytes(self._reader.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)


def require_exists(field_name: str, uri: str, options: dict[str, str] | None = None) -> None:
    """Refuse a setting that points nowhere.

    Raises:
        ConfigError: there is no file, folder or object at ``uri``.
    """
    found = bool(Store(uri, options or {}).names()) if is_remote(uri) else Path(uri).exists()
    if not found:
        raise ConfigError(field_name, f"there is nothing at {uri}", "give a path or URI that exists")


def store_digest(store: Store, name: str) -> str:
    """sha256 (hex) of an object.

    Raises:
        FileNotFoundError: there is no such object.
    """
    if not is_remote(store.uri):
        return digest_path(Path(store.uri) / _safe(name))
    data = store.get(name)
    if data is None:
        raise FileNotFoundError(name)
    return hashlib.sha256(data).hexdigest()


def _safe(name: str) -> str:
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name!r} leaves its folder")
    return name


def _link_new(target: Path, data: bytes) -> bool:
    if target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # link, unlike rename, never replaces: a finished object is never overwritten and never seen half written.
        os.link(draft, target)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True
