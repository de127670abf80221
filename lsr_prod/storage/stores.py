"""One interface to local folders and object stores.

A URI is a local folder, or ``s3://``, ``gs://``, ``az://`` (through obstore). The protocols rely on one operation:
create an object only if it is absent. Readers of artifacts get a local folder and map its files.
"""

import hashlib
import io
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lsr_prod import errors, logs
from lsr_prod.storage import drafts, remote
from lsr_prod.storage.disk import Entry, checked_chunks, disk_failure, draft_name, local_entry, walk
from lsr_prod.storage.formats.digests import digest_path
from lsr_prod.storage.location import is_remote, location_problem, normalize_options, options_of

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_DELETED_AT_ONCE = 1000  # the limit of S3
_CONFLICTS = 8  # creations of one object that a service refuses although it does not exist, in some 13 s


@dataclass(frozen=True, slots=True)
class Store:
    """A folder, local or remote.

    Every method raises ``StorageError`` if the disk or the service fails; an absent object is no failure.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = Store(folder)
        ...     store.put_new("a.json", b"1"), store.put_new("a.json", b"2"), store.get("a.json")
        (True, False, b'1')

    Attributes:
        uri: the folder. A local one is created on the first write.
        options: options of object stores, normalized when the store is made; see ``normalize_options``.
    """

    uri: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse a URI that is not supported, which would become a local folder of that name, and normalize options."""
        problem = location_problem(self.uri)
        if problem is not None:
            raise errors.StorageError(f"{logs.without_credentials(self.uri)} cannot be opened: {problem}")
        object.__setattr__(self, "options", normalize_options(self.options))

    @property
    def delta_options(self) -> dict[str, str] | None:
        """``storage_options`` for delta-rs."""
        if not is_remote(self.uri):
            return None
        return {name.upper(): value for name, value in options_of(self.uri, self.options).items()}

    @property
    def location(self) -> str:
        """The folder in the form of delta-rs: an absolute path, or the URI without a trailing slash."""
        return self.uri.rstrip("/") if is_remote(self.uri) else str(Path(self.uri).absolute())

    def child(self, name: str) -> "Store":
        """Return a folder inside this one."""
        return Store(f"{self.uri.rstrip('/')}/{_safe(name)}", self.options)

    def put_new(self, name: str, data: bytes) -> bool:
        """Create an object durably with the content ``data``, unless its name is taken.

        Args:
            name: path inside the folder, with forward slashes.
            data: the whole content.

        Returns:
            True if this call created it; False if it existed, which is left as it is.
        """
        with _failures(f"{self.uri}/{name}", "written"):
            remote.count("put", written=len(data))
            if not is_remote(self.uri):
                return drafts.create_file(Path(self.uri) / _safe(name), (data,))
            return self._create_object(name, data)

    def put(self, name: str, data: bytes) -> None:
        """Create an object durably with the content ``data``, or replace it."""
        with _failures(f"{self.uri}/{name}", "written"):
            remote.count("put", written=len(data))
            if is_remote(self.uri):
                self._remote().put(_safe(name), data)
            else:
                drafts.write_file(Path(self.uri) / _safe(name), data)

    def put_file_new(self, name: str, source: Path, sha256: str) -> bool:
        """Create an object durably with the content of a file, unless its name is taken; memory is bounded.

        A large file is sent to an object store in parts. If two processes send one name at once, the later object
        replaces the earlier: use names that contain a digest of the content.

        Args:
            name: path inside the folder, with forward slashes.
            source: the file.
            sha256: digest of its content.

        Returns:
            True if this call created it; False if it existed, which is left as it is.

        Raises:
            DigestMismatchError: the file has another sha256; nothing was created.
        """
        with _failures(f"{self.uri}/{name}", "written"):
            size = source.stat().st_size
            if not is_remote(self.uri):
                remote.count("put", written=size)
                return drafts.create_file(Path(self.uri) / _safe(name), checked_chunks(source, sha256, 1 << 20))
            if self.entry(name) is not None:
                return False
            if size <= remote.PART_BYTES:
                return self.put_new(name, b"".join(checked_chunks(source, sha256, remote.PART_BYTES)))
            remote.count("put", requests=-(-size // remote.PART_BYTES), written=size)
            remote.put_parts(self._remote(), _safe(name), source, sha256)
            return True

    def put_file(self, name: str, source: Path, sha256: str) -> None:
        """Create an object with the content of a file, or replace it; memory is bounded.

        Args:
            name: path inside the folder, with forward slashes.
            source: the file.
            sha256: digest of its content.

        Raises:
            DigestMismatchError: the file has another sha256; nothing was created or replaced.
        """
        with _failures(f"{self.uri}/{name}", "written"):
            size = source.stat().st_size
            remote.count("put", requests=max(-(-size // remote.PART_BYTES), 1), written=size)
            if not is_remote(self.uri):
                with drafts.new_file(Path(self.uri) / _safe(name), replace=True) as file:
                    file.writelines(checked_chunks(source, sha256, 1 << 20))
            elif size <= remote.PART_BYTES:
                self._remote().put(_safe(name), b"".join(checked_chunks(source, sha256, remote.PART_BYTES)))
            else:
                remote.put_parts(self._remote(), _safe(name), source, sha256)

    def get(self, name: str) -> bytes | None:
        """Return the content of an object, or None if it does not exist."""
        with _failures(f"{self.uri}/{name}", "read"):
            try:
                if is_remote(self.uri):
                    data = bytes(self._remote().get(_safe(name)).bytes())
                else:
                    data = (Path(self.uri) / _safe(name)).read_bytes()
                remote.count("get", read=len(data))
                return data
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return ``length`` bytes of an object from byte ``start``, which is inside it; fewer if it ends earlier.

        Raises:
            FileNotFoundError: the object does not exist.
        """
        with _failures(f"{self.uri}/{name}", "read"):
            remote.count("get", read=length)
            if not is_remote(self.uri):
                with (Path(self.uri) / _safe(name)).open("rb") as file:
                    file.seek(start)
                    return file.read(length)
            return remote.get_range(self._remote(), _safe(name), start, length)

    def entry(self, name: str) -> Entry | None:
        """Return size, time and tag of an object, or None if it does not exist."""
        with _failures(f"{self.uri}/{name}", "looked up"):
            remote.count("head")
            try:
                if not is_remote(self.uri):
                    return local_entry(Path(self.uri), Path(self.uri) / _safe(name))
                found = self._remote().head(_safe(name))
            except (FileNotFoundError, NotADirectoryError):
                return None
            return remote.object_entry(name, found)

    def size(self, name: str) -> int | None:
        """Return the bytes of an object, or None if it does not exist."""
        found = self.entry(name)
        return found.size if found else None

    def etag(self, name: str) -> str:
        """Return the tag that an object store changes with the content of the object.

        Raises:
            FileNotFoundError: the object does not exist.
        """
        with _failures(f"{self.uri}/{name}", "looked up"):
            remote.count("head")
            return str(self._remote().head(_safe(name))["e_tag"])

    def open_reader(self, name: str, *, etag: str | None = None) -> BinaryIO:
        """Open an object as a seekable file that is read in pieces.

        All pieces of an object of an object store are of one version. If the object is replaced meanwhile, a read
        raises ``ObjectChangedError``, which is an OSError.

        Args:
            name: path inside the folder, with forward slashes.
            etag: version of an object of an object store; None: the current one. It has no meaning for a local file.

        Raises:
            FileNotFoundError: the object does not exist.
            ObjectChangedError: the object has another ETag.
        """
        with _failures(f"{self.uri}/{name}", "opened"):
            if not is_remote(self.uri):
                remote.count("get")
                return io.BufferedReader(remote.CountedFile(Path(self.uri) / _safe(name)))
            return remote.open_object(self._remote(), _safe(name), etag)

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of all objects below the folder ``prefix``, sorted."""
        return [entry.name for entry in self.entries(prefix)]

    def entries(self, prefix: str = "") -> list[Entry]:
        """Return all objects below the folder ``prefix``, sorted by name: one listing, no request per object."""
        with _failures(f"{self.uri}/{prefix}", "listed"):
            remote.count("list")
            if not is_remote(self.uri):
                return sorted(walk(Path(self.uri), _safe(prefix)), key=lambda entry: entry.name)
            batches = self._remote().list(prefix=_safe(prefix) or None, chunk_size=1000)
            found = [remote.object_entry(str(one["path"]), one) for batch in batches for one in batch]
            return sorted(found, key=lambda entry: entry.name)

    def delete(self, name: str) -> None:
        """Delete an object; an object that does not exist is no error."""
        with _failures(f"{self.uri}/{name}", "deleted"):
            remote.count("delete")
            if not is_remote(self.uri):
                (Path(self.uri) / _safe(name)).unlink(missing_ok=True)
                return
            try:
                self._remote().delete(_safe(name))
            except FileNotFoundError:
                return

    def delete_all(self, names: Sequence[str]) -> None:
        """Delete objects, up to 1,000 per request; objects that do not exist are no error."""
        if not is_remote(self.uri):
            remote.in_threads(self.delete, names)
            return
        for start in range(0, len(names), _DELETED_AT_ONCE):
            some = names[start : start + _DELETED_AT_ONCE]
            with _failures(f"{self.uri}/{some[0]}", "deleted"):
                remote.count("delete")
                try:
                    self._remote().delete([_safe(name) for name in some])
                except FileNotFoundError:  # of a service that deletes them one by one
                    remote.in_threads(self.delete, some)

    def touch(self, name: str) -> None:
        """Set the modification time of an object to now, so that garbage collection takes it for new.

        Raises:
            FileNotFoundError: the object does not exist.
        """
        with _failures(f"{self.uri}/{name}", "touched"):
            remote.count("put")
            if not is_remote(self.uri):
                os.utime(Path(self.uri) / _safe(name))  # without times: by the clock of the disk
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
            raise errors.StorageError(f"{self.uri} does not keep what is written to it; check the store")
        return entry.modified

    def _create_object(self, name: str, data: bytes) -> bool:
        """Create an object of an object store, unless it exists.

        S3 also refuses a creation (409) if a deletion or another creation of the name is under way, and nothing may
        exist afterwards: then the creation is repeated.
        """
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        for attempt in range(_CONFLICTS):
            try:
                self._remote().put(_safe(name), data, mode="create")
            except (AlreadyExistsError, PreconditionError):
                if self.entry(name) is not None:
                    return False
                time.sleep(0.05 * 2**attempt)
            else:
                return True
        raise errors.StorageError(
            f"{self.uri}/{name} could not be written: the service refused it {_CONFLICTS} times, but it is absent; "
            "check the service, then run again"
        )

    def _remote(self) -> "ObjectStore":
        return remote.connect(self.uri, tuple(options_of(self.uri, self.options).items()))


@contextmanager
def _failures(place: str, verb: str) -> Iterator[None]:
    """Turn errors of a disk or a service into StorageError; the absence of an object stays FileNotFoundError."""
    try:
        yield
    except (errors.LsrError, remote.ObjectChangedError):
        raise
    except FileNotFoundError as error:
        if verb not in ("written", "listed"):
            raise
        raise errors.StorageError(
            f"{place} could not be {verb} ({remote.short_message(error)}); create the bucket or the folder"
        ) from error
    except OSError as error:
        if verb == "written":
            raise disk_failure(error, place) from error
        raise errors.StorageError(f"{place} could not be {verb} ({error}); fix the disk, then run again") from error
    except BaseException as error:
        if not remote.is_remote_failure(error):
            raise
        remedy = "check storage.options, the credentials and the service"
        raise errors.StorageError(f"{place} could not be {verb} ({remote.short_message(error)}); {remedy}") from error


def as_store(place: Store | Path) -> Store:
    """Return the store of a local folder; a store is returned as it is."""
    return place if isinstance(place, Store) else Store(str(place))


def require_exists(field_name: str, uri: str, options: dict[str, str] | None = None) -> None:
    """Refuse a setting that names nothing.

    Raises:
        ConfigError: no file, folder or object exists at ``uri``.
    """
    found = bool(Store(uri, options or {}).names()) if is_remote(uri) else Path(uri).exists()
    if not found:
        raise errors.ConfigError(field_name, f"there is nothing at {uri}", "give a path or URI that exists")


def store_digest(store: Store, name: str) -> str:
    """Return the sha256 (hex) of an object.

    Raises:
        FileNotFoundError: the object does not exist.
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
