"""Kill a protocol of the storage at every call that changes the disk, and run it again after each.

``python -m tests.storage.kill_points PROTOCOL FOLDER`` prints the number of calls. Each attempt is a fork of this
process, which must be without threads.
"""

import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lsr_prod.storage import Store, transfer
from lsr_prod.storage.artifacts import fetch_artifact, put_artifact
from lsr_prod.storage.disk import is_draft
from lsr_prod.storage.drafts import Draft, copy_tree, write_file
from lsr_prod.storage.formats.bundle_format import Bundle
from lsr_prod.storage.formats.digests import digest_folder
from lsr_prod.storage.index_shards import add_bundle
from lsr_prod.storage.node_cache import Contents, NodeCache
from tests.indexing.corpus import make_bundle

_CHANGES = {
    *("os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"),
    *("os.utime", "fcntl.flock"),
}
_FILES = {"card.json": b"{}", "1/config.json": b"[1]", "1/same.json": b"{}", "weights": bytes(range(256)) * 40}
_DIGEST = "d" * 64


class Protocol(NamedTuple):
    """A protocol that is killed.

    Attributes:
        prepare: makes what it needs, once for all attempts.
        begin: makes the state of one attempt.
        run: runs it; called again after each kill.
        check: requires the result.
    """

    prepare: Callable[[Path], None]
    begin: Callable[[Path, Path], None]
    run: Callable[[Path, Path], object]
    check: Callable[[Path, Path], object]


def _nothing(*_: Path) -> None:
    """Do nothing."""


def _make_source(given: Path, files: dict[str, bytes] | None = None) -> None:
    for name, data in (files or _FILES).items():
        path = given / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _contents(given: Path) -> Contents:
    folder = given / "source"
    return Contents(Store(str(folder)), digest_folder(folder), "make it again", {"manifest": b"m"})


def _read(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and not is_draft(path.name)]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _fetch(given: Path, at: Path, max_bytes: int | None = None) -> None:
    NodeCache(at, max_bytes, connections=1).fetch("source", _DIGEST, lambda: _contents(given))


def _cached(given: Path, at: Path) -> None:
    """The cache has the artifact, whole and read-only, and nothing else."""
    (place,) = (one for one in at.glob("artifacts/*/*") if one.is_dir())
    assert _read(place) == {**_read(given / "source"), "manifest": b"m"}
    files = list((at / "files").iterdir())
    assert sorted(path.name for path in files) == sorted({file.sha256 for file in digest_folder(given / "source")})
    assert all(path.stat().st_mode & 0o777 == 0o444 for path in files)


def _fill(given: Path, at: Path) -> None:
    """Put another artifact into the cache, which has to be evicted."""
    other = given.with_name("other")
    cache = NodeCache(at)
    cache.release(cache.fetch("source", "e" * 64, lambda: _contents(other)).folder)


def _make_two(given: Path) -> None:
    _make_source(given)
    _make_source(given.with_name("other"), {"weights": b"other", "card.json": b"{}"})


def _damage(given: Path, at: Path) -> None:
    _fetch(given, at)
    for path in at.glob("artifacts/*/*/weights"):
        path.chmod(0o644)
        path.write_bytes(b"damaged")


def _repair(given: Path, at: Path) -> None:
    cache = NodeCache(at, connections=1)
    cache.repair(cache.fetch("source", _DIGEST, lambda: _contents(given)).folder, _contents(given))


def _put(given: Path, at: Path) -> None:
    put_artifact(Store(str(at)), "models/one", given / "source")


def _is_put(given: Path, at: Path) -> None:
    assert _read(fetch_artifact(Store(str(at)), "models/one")) == _read(given / "source")


def _copy(given: Path, at: Path) -> None:
    """Copy a folder that cannot be written, and complete the copy."""
    with Draft(at / "copy") as draft:
        copy_tree(given / "source", draft.folder)
        write_file(draft.folder / "1" / "record", b"r")
        write_file(draft.folder / "card.json", b"{}")
        draft.seal()


def _make_read_only(given: Path) -> None:
    _make_source(given)
    for path in [*given.rglob("*"), given / "source"]:
        path.chmod(0o555 if path.is_dir() else 0o444)


def _is_copied(given: Path, at: Path) -> None:
    assert _read(at / "copy") == {**_read(given / "source"), "1/record": b"r"}


def _make_bundle(given: Path) -> None:
    make_bundle(given / "bundle", ["a", "b"])


def _add_bundle(given: Path, at: Path) -> None:
    add_bundle(at, given / "bundle")


def _has_bundle(given: Path, at: Path) -> None:
    (found,) = (one for one in (at / "bundles").iterdir() if not is_draft(one.name))
    Bundle.load(found, verify=True)


def _size(given: Path) -> int:
    return sum({file.sha256: file.size for file in digest_folder(given / "source")}.values())


PROTOCOLS = {
    "fetch": Protocol(_make_source, _nothing, _fetch, _cached),
    "evict": Protocol(_make_two, _fill, lambda given, at: _fetch(given, at, _size(given)), _cached),
    "repair": Protocol(_make_source, _damage, _repair, _cached),
    "put": Protocol(_make_source, _nothing, _put, _is_put),
    "copy": Protocol(_make_read_only, _nothing, _copy, _is_copied),
    "bundle": Protocol(_make_bundle, _nothing, _add_bundle, _has_bundle),
}


def kill_everywhere(protocol: Protocol, folder: Path) -> int:
    """Kill a protocol at each of its changes in turn, and return their number.

    Raises:
        AssertionError: after a kill the protocol fails, or has another result.
    """
    transfer._PIECE = 4000
    os.fsync = lambda _: None  # a kill loses nothing that was written
    given = folder / "given"
    given.mkdir()
    protocol.prepare(given)
    calls = 0
    while True:
        at = folder / str(calls)
        at.mkdir()
        assert _forked(partial(protocol.begin, given, at)) == 0
        status = _forked(partial(protocol.run, given, at), kill_at=calls)
        assert status in (0, 9), status
        for _ in range(2):  # the second finds the result of the first
            assert _forked(partial(protocol.run, given, at)) == 0, f"killed at call {calls}, the protocol fails"
        assert _forked(partial(protocol.check, given, at)) == 0, f"killed at call {calls}, the result differs"
        if status == 0:
            return calls
        calls += 1


def _forked(work: Callable[[], object], kill_at: int | None = None) -> int:
    """Run a function in a fork and return its wait status; it is killed before its change number ``kill_at``."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        if kill_at is not None:
            _kill_at(kill_at)
        work()
    except BaseException:  # noqa: BLE001 - the fork must not return
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _kill_at(call: int) -> None:
    seen = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        opened = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not opened and event not in _CHANGES:
            return
        if seen == call:
            os.kill(os.getpid(), 9)
        seen += 1

    sys.addaudithook(count)


if __name__ == "__main__":
    print(kill_everywhere(PROTOCOLS[sys.argv[1]], Path(sys.argv[2])))
