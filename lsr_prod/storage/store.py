"""Folders and object stores behind one set of verbs: the only module that opens a path that jobs write to.

A URI is a local folder, or ``s3://``, ``gs://``, ``az://`` (through obstore). What the protocols need from a store is
one thing: create an object only if it is absent. Readers of finished artefacts get a local folder and map it.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lsr_prod.errors import ConfigError, LsrError, StorageError
from lsr_prod.formats.digest import digest_path
from lsr_prod.storage.drafts import create_file, draft_name
from lsr_prod.storage.local import Entry, checked_chunks, local_entry, walk
from lsr_prod.storage.remote import (
    PART_BYTES,
    connect,
    get_range,
    is_remote_failure,
    open_object,
    put_parts,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["Entry", "Store", "as_store", "is_remote", "require_exists", "store_digest"]

_REMOTE = ("s3://", "gs://", "az://", "abfss://")


def is_remote(uri: str) -> bool:
    """Whether ``uri`` names an object store; everything else is a local path."""
    return uri.startswith(_REMOTE)


@dataclass(frozen=True, slots=True)
class Store:
    """A folder, local or remote.

    Every verb raises ``StorageError`` where the disk or the service fails; an absent object is no failure.

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
        with _failures(f"{self.uri}/{name}", "written"):
            if not is_remote(self.uri):
                return create_file(Path(self.uri) / _safe(name), (data,))
            from obstore.exceptions import AlreadyExistsError, PreconditionError

            try:
                self._remote().put(_safe(name), data, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def put_file_new(self, name: str, source: Path, sha256: str) -> bool:
        """Create an object with the content of a file, durably, unless its name is taken; memory stays bounded.

        An object store takes a large file in parts, and of two that send one at once the later replaces the earlier:
        give names that stand for the content.

        Args:
            name: path inside the folder, with forward slashes.
            source: the file.
            sha256: of its content.

        Returns:
            True if this call created it; False if it was there, untouched.

        Raises:
            DigestMismatchError: the file has another sha256; nothing was created.
        """
        with _failures(f"{self.uri}/{name}", "written"):
            if not is_remote(self.uri):
                return create_file(Path(self.uri) / _safe(name), checked_chunks(source, sha256, 1 << 20))
            if self.entry(name) is not None:
                return False
            size = source.stat().st_size
            if size <= PART_BYTES:
                return self.put_new(name, b"".join(checked_chunks(source, sha256, PART_BYTES)))
            put_parts(self._remote(), _safe(name), source, sha256)
            return True

    def get(self, name: str) -> bytes | None:
        """The content of an object, or None if there is none."""
        with _failures(f"{self.uri}/{name}", "read"):
            try:
                if not is_remote(self.uri):
                    return (Path(self.uri) / _safe(name)).read_bytes()
                return bytes(self._remote().get(_safe(name)).bytes())
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """``length`` bytes of an object from byte ``start``, which lies inside it; fewer where it ends before.

        Raises:
            FileNotFoundError: there is no such object.
        """
        with _failures(f"{self.uri}/{name}", "read"):
            if not is_remote(self.uri):
                with (Path(self.uri) / _safe(name)).open("rb") as file:
                    file.seek(start)
                    return file.read(length)
            return get_range(self._remote(), _safe(name), start, length)

    def entry(self, name: str) -> Entry | None:
        """Size, time and tag of an object, or None if there is none."""
        with _failures(f"{self.uri}/{name}", "looked up"):
            try:
                if not is_remote(self.uri):
                    return local_entry(Path(self.uri), Path(self.uri) / _safe(name))
                found = self._remote().head(_safe(name))
            except (FileNotFoundError, NotADirectoryError):
                return None
            return Entry(name, int(found["size"]), found["last_modified"].timestamp(), found["e_tag"])

    def size(self, name: str) -> int | None:
        """Bytes of an object, or None if there is none."""
        found = self.entry(name)
        return found.size if found else None

    def etag(self, name: str) -> str:
        """What the object store changes whenever the object's content changes.

        Raises:
            FileNotFoundError: there is no such object.
        """
        with _failures(f"{self.uri}/{name}", "looked up"):
            return str(self._remote().head(_safe(name))["e_tag"])

    def open_reader(self, name: str) -> BinaryIO:
        """An object as a seekable file, read in pieces.

        Raises:
            FileNotFoundError: there is no such object.
        """
        with _failures(f"{self.uri}/{name}", "opened"):
            if not is_remote(self.uri):
                return (Path(self.uri) / _safe(name)).open("rb")
            return open_object(self._remote(), _safe(name))

    def names(self, prefix: str = "") -> list[str]:
        """Names of all objects below the folder ``prefix``, sorted."""
        return [entry.name for entry in self.entries(prefix)]

    def entries(self, prefix: str = "") -> list[Entry]:
        """All objects below the folder ``prefix``, sorted by name: one listing, no request for each object."""
        with _failures(f"{self.uri}/{prefix}", "listed"):
            if not is_remote(self.uri):
                return sorted(walk(Path(self.uri), _safe(prefix)), key=lambda entry: entry.name)
            batches = self._remote().list(prefix=_safe(prefix) or None, chunk_size=1000)
            found = [
                Entry(str(one["path"]), int(one["size"]), one["last_modified"].timestamp(), one["e_tag"])
                for batch in batches
                for one in batch
            ]
            return sorted(found, key=lambda entry: entry.name)

    def delete(self, name: str) -> None:
        """Remove an object; one that is gone already is no error."""
        with _failures(f"{self.uri}/{name}", "deleted"):
            if not is_remote(self.uri):
                (Path(self.uri) / _safe(name)).unlink(missing_ok=True)
                return
            try:
                self._remote().delete(_safe(name))
            except FileNotFoundError:
                return

    def refresh(self, name: str) -> None:
        """Make a finished object as young as if it were written now; its content stays.

        Raises:
            FileNotFoundError: there is no such object.
        """
        with _failures(f"{self.uri}/{name}", "refreshed"):
            if not is_remote(self.uri):
                os.utime(Path(self.uri) / _safe(name), (time.time(), time.time()))
                return
            self._remote().put(_safe(name), bytes(self._remote().get(_safe(name)).bytes()))

    def now(self, folder: str) -> float:
        """Return the time by the clock of the store, in seconds since 1970: the clock of this machine may differ.

        Args:
            folder: path inside the store, in which a file may be created.

        Raises:
            StorageError: the store does not keep the file.
        """
        name = f"{folder}/{draft_name('clock')}"  # a draft: garbage collection removes it if this process dies here
        self.put_new(name, b"")
        entry = self.entry(name)
        self.delete(name)
        if entry is None:
            raise StorageError(f"{self.uri} does not keep what is written to it; check the store")
        return entry.modified

    def _remote(self) -> "ObjectStore":
        return connect(self.uri, tuple(sorted(self.options.items())))


@contextmanager
def _failures(place: str, verb: str) -> Iterator[None]:
    """Turn what a disk or a service raises into one sentence; the absence of an object stays FileNotFoundError."""
    try:
        yield
    except LsrError:
        raise
    except FileNotFoundError as error:
        if verb not in ("written", "listed"):
            raise
        raise StorageError(f"{place} could not be {verb} ({_short(error)}); create the bucket or the folder") from error
    except OSError as error:
        raise StorageError(f"{place} could not be {verb} ({error}); mend the disk, then run again") from error
    except Exception as error:
        if not is_remote_failure(error):
            raise
        remedy = "look at storage.options, the credentials and the service"
        raise StorageError(f"{place} could not be {verb} ({_short(error)}); {remedy}") from error


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def as_store(place: Store | Path) -> Store:
    """Return the store of a local folder; a store is returned as it is."""
    return place if isinstance(place, Store) else Store(str(place))


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
