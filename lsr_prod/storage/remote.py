"""Object stores for ``storage.Store``: one client per folder, objects as Python files, and calls in threads.

Requests to stores are counted, and the bytes that this process reads and writes, local folders included. Requests of
delta-rs for the log of a Delta table are not counted: they do not pass through ``Store``.
"""

import io
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from lsr_prod import errors, logs
from lsr_prod.storage import disk, location
from lsr_prod.storage.formats.pages import PiecewiseFile

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore

_lock = threading.Lock()
_requests: Counter[str] = Counter()
_bytes = Counter(read=0, written=0)
PART_BYTES = 8 << 20  # bytes of one request: the client's time limit is per request
_PARTS = 9000  # S3 allows 10,000 parts
_PARTS_AT_ONCE = 4
_THREADS = 32  # a call waits about 20 ms for an object store
_HELD = 4096  # calls that are queued at a time: one takes 2 KB
_COLOR = re.compile(r"\x1b\[[0-9;]*m")

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """Requests and bytes."""

    # number of requests by kind: ``get``, ``put``, ``head``, ``list`` and ``delete``. A local file that is opened
    # is one ``get``; an object is one per piece that is read.
    requests: Mapping[str, int] = field(default_factory=dict)
    bytes_read: int = 0  # bytes of contents that were read
    bytes_written: int = 0  # bytes of contents that were written

    def __add__(self, other: "StoreCounts") -> "StoreCounts":
        """Return the sum."""
        requests = dict(Counter(self.requests) + Counter(other.requests))
        return StoreCounts(requests, self.bytes_read + other.bytes_read, self.bytes_written + other.bytes_written)

    def __sub__(self, earlier: "StoreCounts") -> "StoreCounts":
        """Return what was counted since an earlier moment."""
        requests = dict(Counter(self.requests) - Counter(earlier.requests))
        return StoreCounts(requests, self.bytes_read - earlier.bytes_read, self.bytes_written - earlier.bytes_written)


def count(kind: str, *, requests: int = 1, read: int = 0, written: int = 0) -> None:
    """Count requests of one kind and their bytes."""
    with _lock:
        _requests[kind] += requests
        _bytes["read"] += read
        _bytes["written"] += written


def store_counts() -> StoreCounts:
    """Return the counts of this process since it began."""
    with _lock:
        return StoreCounts({kind: number for kind, number in _requests.items() if number}, *_bytes.values())


class CountedFile(io.FileIO):
    """A local file whose bytes are counted when they are read."""

    def readinto(self, buffer: Any, /) -> int:
        """Read bytes into a buffer and return their number."""
        number = super().readinto(buffer) or 0
        count("get", requests=0, read=number)
        return number

    def readall(self) -> bytes:
        """Return the rest of the file."""
        data = super().readall() or b""
        count("get", requests=0, read=len(data))
        return data


def in_threads(work: Callable[[Item], Result], items: Iterable[Item], threads: int = _THREADS) -> list[Result]:
    """Call ``work`` with every item and return the results; after an error no further call is started."""
    results: list[Result] = []
    left = iter(items)
    with ThreadPoolExecutor(threads, thread_name_prefix="lsr-store") as pool:
        while calls := [pool.submit(work, item) for item in islice(left, _HELD)]:
            try:
                for call in as_completed(calls):
                    call.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            results += [call.result() for call in calls]
    return results


@lru_cache(maxsize=64)  # a client holds its connections: one per folder, not per call
def connect(uri: str, options: tuple[tuple[str, str], ...]) -> "ObjectStore":
    """Return the client of a folder."""
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise errors.MissingExtraError("obstore", "jobs") from error
    # delta-rs takes one flat mapping; obstore takes the options of the HTTP client separately.
    client = {name: value for name, value in options if location.is_client_option(name)}
    config = {name: value for name, value in options if name not in client}
    escaped = uri.replace("%", "%25").replace("?", "%3F")
    store: ObjectStore = from_url(escaped, config=config, client_options=client)  # type: ignore[call-overload]
    return store


def is_remote_failure(error: BaseException) -> bool:
    """Return whether the client of an object store raised this error, or panicked."""
    if type(error).__name__ == "PanicException":  # of Rust, below BaseException; the class cannot be imported
        return True
    if not type(error).__module__.startswith("obstore"):
        return False
    from obstore.exceptions import BaseError

    return isinstance(error, BaseError)


def short_message(error: BaseException) -> str:
    """Return the message of a library in one line, without colors and without its debug output."""
    message = _COLOR.sub("", str(error)).partition("Debug source:")[0]
    return logs.without_credentials(" ".join(message.split()))[:300]


class ObjectChangedError(OSError):
    """An object has another ETag than the version that is read."""


def object_entry(name: str, found: "ObjectMeta") -> disk.Entry:
    """Return the entry of an object, with its time in whole seconds.

    Ceph lists times in milliseconds, but answers requests for one object in seconds, so that an unchanged object would
    have two times.
    """
    return disk.Entry(name, int(found["size"]), float(math.floor(found["last_modified"].timestamp())), found["e_tag"])


def open_object(store: "ObjectStore", name: str, etag: str | None) -> BinaryIO:
    """Open an object as a seekable file that is read in pieces of 1 MiB, all of one version of the object."""
    count("head")
    found = store.head(name)
    current = found["e_tag"]
    if etag is not None and current != etag:
        raise ObjectChangedError(f"{name} has the ETag {current} instead of {etag}")
    return io.BufferedReader(_RemoteFile(store, name, int(found["size"]), current), 1 << 20)


def get_range(store: "ObjectStore", name: str, start: int, length: int) -> bytes:
    """Return bytes of an object, in one request."""
    import obstore

    return bytes(obstore.get_range(store, name, start=start, length=length))


def put_parts(store: "ObjectStore", name: str, source: Path, sha256: str) -> None:
    """Send a large file in parts; the object appears when all parts are sent and have the sha256."""
    part = max(PART_BYTES, -(-source.stat().st_size // _PARTS))
    chunks = disk.checked_chunks(source, sha256, part)
    store.put(name, chunks, chunk_size=part, max_concurrency=_PARTS_AT_ONCE, use_multipart=True)


class _RemoteFile(PiecewiseFile):
    """One version of an object as a Python file: each read is a request with the condition ``If-Match``.

    The ETag of the answer is compared too: some services ignore the condition, and a weak ETag never satisfies it.
    """

    def __init__(self, store: "ObjectStore", name: str, size: int, etag: str | None) -> None:
        super().__init__(size, name)
        self._store, self._etag = store, etag

    def _read(self, start: int, stop: int) -> bytes:
        from obstore.exceptions import PreconditionError

        options: GetOptions = {"range": (start, stop)}
        if self._etag is not None and not self._etag.startswith("W/"):
            options["if_match"] = self._etag
        count("get", read=stop - start)
        try:
            found = self._store.get(self._name, options=options)
            if self._etag is not None and found.meta["e_tag"] != self._etag:
                raise ObjectChangedError(f"{self._name} no longer has the ETag {self._etag}")
            return bytes(found.bytes())
        except PreconditionError as error:
            raise ObjectChangedError(f"{self._name} no longer has the ETag {self._etag}") from error
        except (ObjectChangedError, FileNotFoundError):
            raise
        except BaseException as error:
            if not is_remote_failure(error):
                raise
            raise errors.StorageError(f"{self._name} could not be read ({short_message(error)}); run again") from error
