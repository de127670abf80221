"""What jobs need of a store: conditional creation, uploads in parts, consistent listings, deletion and a clock."""

import hashlib
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from lsr_prod.errors import LsrError, StorageError
from lsr_prod.logs import without_credentials
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.remote import PART_BYTES
from lsr_prod_contrib.doctor.machine import Finding

_WRITERS = 8
_ROUNDS = 3
_OBJECTS = 20
_SKEW_WARNING, _SKEW_FAULT = 5.0, 60.0
_SLOW_S = 0.5


def check_store(field: str, store: Store) -> Iterator[Finding]:
    """Check a folder or a prefix; everything is written below a private name and deleted again."""
    folder, absent = _folder(), _absent_folders(store)
    steps: tuple[tuple[str, Callable[[Store, str], str], str], ...] = (
        ("rights", _read_and_write, "grant the job read, write, list and delete below this prefix"),
        ("create if absent", _create_once, "use a store with conditional writes (docs/object-stores.md)"),
        (
            "one of several writers",
            _one_winner,
            "use a store whose conditional writes are atomic (docs/object-stores.md)",
        ),
        ("parts", _in_parts, "allow multipart uploads, and requests of 8 MiB in proxies"),
        ("listing", _listing, "use a store with consistent listings"),
        ("deletion", _deletion, "grant the job the right to delete; maintain and reindex need it"),
    )
    try:
        for name, step, remedy in steps:
            check = f"{field}: {name}"
            try:
                yield Finding(check, "ok", step(store, folder))
            except LsrError as error:
                yield Finding(check, "fault", str(error), remedy)
                if step is _read_and_write:
                    return  # nothing else can be tried
        yield _clock(field, store, folder)
    finally:
        _clean(store, folder)
        for path in absent:
            with suppress(OSError):  # another process writes there meanwhile
                path.rmdir()


def check_checkpoints(field: str, work: Store) -> Finding:
    """Write a file as Ray Train writes checkpoints: with the library of pyarrow, in parts."""
    from lsr_prod.training.loop.checkpoint import check_work, file_system

    name = f"{_folder()}/checkpoint"
    try:
        check_work(work)
        files = file_system(work)
        assert files is not None
        with files.open_output_stream(f"{work.uri.partition('://')[2].rstrip('/')}/{name}") as out:
            out.write(b"checkpoint")
        if work.get(name) != b"checkpoint":
            raise StorageError("a checkpoint that was just written is read back differently")
    except (LsrError, OSError) as error:
        remedy = "grant the same rights as for the other stores; unset AWS_REQUEST_CHECKSUM_CALCULATION if it is set"
        return Finding(f"{field}: checkpoints", "fault", without_credentials(str(error)), remedy)
    finally:
        _clean(work, name.partition("/")[0])
    return Finding(f"{field}: checkpoints", "ok", "a checkpoint is read as it was written")


def _folder() -> str:
    return f".lsr-prod-doctor-{uuid.uuid4().hex}"


def _absent_folders(store: Store) -> list[Path]:
    """Return the folder of a local store and those above it that do not exist, the innermost first."""
    absent: list[Path] = []
    if not is_remote(store.uri):
        place = Path(store.uri)
        with suppress(OSError):  # no rights: the check of rights says so
            absent.extend(takewhile(lambda path: not path.exists(), (place, *place.parents)))
    return absent


def _read_and_write(store: Store, folder: str) -> str:
    data = b"lsr_prod" * 1000
    began = time.perf_counter()
    store.put_new(f"{folder}/rights", data)
    if store.get(f"{folder}/rights") != data:
        raise StorageError("an object that was just written is read back differently")
    seconds = (time.perf_counter() - began) / 2
    return f"{store.uri}: {seconds * 1e3:.0f} ms per request" + ("; this is slow" if seconds > _SLOW_S else "")


def _create_once(store: Store, folder: str) -> str:
    first, second = (store.put_new(f"{folder}/once", content) for content in (b"first", b"second"))
    if not first or second or store.get(f"{folder}/once") != b"first":
        raise StorageError("an object that exists was created again: two jobs would both win a commit")
    return "a second creation is refused"


def _one_winner(store: Store, folder: str) -> str:
    with ThreadPoolExecutor(_WRITERS) as threads:
        for number in range(_ROUNDS):
            name = f"{folder}/race-{number}"
            won = list(threads.map(lambda writer, name=name: store.put_new(name, b"%d" % writer), range(_WRITERS)))
            if sum(won) != 1:
                raise StorageError(f"{sum(won)} of {_WRITERS} concurrent writers created the same object")
            if store.get(name) != b"%d" % won.index(True):
                raise StorageError("the object has the content of a writer that was refused")
    return f"one of {_WRITERS} concurrent writers wins"


def _in_parts(store: Store, folder: str) -> str:
    name, data = f"{folder}/parts", os.urandom(PART_BYTES + 1)
    with tempfile.NamedTemporaryFile() as source:
        source.write(data)
        source.flush()
        store.put_file(name, Path(source.name), hashlib.sha256(data).hexdigest())
    if store.size(name) != len(data) or store.read_range(name, PART_BYTES - 1, 2) != data[-2:]:
        raise StorageError("an object that was sent in parts is read back differently")
    return f"{len(data)} bytes are sent in parts"


def _listing(store: Store, folder: str) -> str:
    names = {f"{folder}/listed-{number}" for number in range(_OBJECTS)}
    with ThreadPoolExecutor(_WRITERS) as threads:
        list(threads.map(lambda name: store.put_new(name, b"x"), sorted(names)))
    missing = names - set(store.names(folder))
    if missing:
        raise StorageError(f"{len(missing)} of {_OBJECTS} objects are missing in a listing after they were written")
    return f"{_OBJECTS} new objects are listed at once"


def _deletion(store: Store, folder: str) -> str:
    name = f"{folder}/deleted"
    store.put_new(name, b"x")
    store.delete(name)
    if store.get(name) is not None:
        raise StorageError("an object that was deleted can still be read")
    if name in store.names(folder):
        raise StorageError("an object that was deleted is still listed")
    return "a deleted object is gone"


def _clock(field: str, store: Store, folder: str) -> Finding:
    check, remedy = f"{field}: clock", "synchronize the clocks of this machine and of the store (chrony, NTP)"
    try:
        began = time.time()
        theirs = store.now(folder)
    except LsrError as error:
        return Finding(check, "fault", str(error), remedy)
    skew = theirs - (began + time.time()) / 2
    found = f"{skew:+.1f} s beside this machine"
    if abs(skew) < _SKEW_WARNING:
        return Finding(check, "ok", found)
    return Finding(check, "fault" if abs(skew) > _SKEW_FAULT else "warning", found, remedy)


def _clean(store: Store, folder: str) -> None:
    """Delete what is left, as far as the store allows it; a finding has said why it does not."""
    with suppress(LsrError, OSError):
        store.delete_all(store.names(folder))
        if not is_remote(store.uri):
            (Path(store.uri) / folder).rmdir()
