import logging
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from lsr_prod.storage import digest_cache
from lsr_prod.storage.digest_cache import DigestCache, FileChangedError
from lsr_prod.storage.formats.digests import digest_path


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the files that were hashed."""
    found: list[str] = []
    whole = digest_cache.hashlib.file_digest

    def file_digest(file, name):
        found.append(file.name)
        return whole(file, name)

    monkeypatch.setattr(digest_cache.hashlib, "file_digest", file_digest)
    return found


def write(path: Path, data: bytes, age_s: float = 10) -> Path:
    path.write_bytes(data)
    time = path.stat().st_mtime_ns - int(age_s * 1e9)
    os.utime(path, ns=(time, time))
    return path


def digest(path: Path, cache: Path) -> str:
    with DigestCache(cache) as opened, path.open("rb") as file:
        return opened.digest(str(path), file)[0]


def test_unchanged_file_is_hashed_once_by_all_runs(tmp_path: Path, hashed: list[str]):
    path = write(tmp_path / "a\udcff", b"content")
    assert {digest(path, tmp_path / "cache") for _ in range(3)} == {digest_path(path)}
    assert len(hashed) == 1


def test_changed_moved_and_replaced_files_are_hashed_again(tmp_path: Path, hashed: list[str]):
    path, cache = write(tmp_path / "a", b"content"), tmp_path / "cache"
    before = path.stat().st_mtime_ns
    digest(path, cache)
    write(path, b"CONTENT", age_s=20)
    assert digest(path, cache) == digest_path(path)
    write(tmp_path / "b", b"another").rename(path)
    os.utime(path, ns=(before, before))
    assert digest(path, cache) == digest_path(path)
    assert digest(path.rename(tmp_path / "c"), cache)
    assert len(hashed) == 4
    path = tmp_path / "c"
    with path.open("r+b") as file:
        file.write(b"again")
    os.utime(path, ns=(before, before))  # the time is restored, but not that of the inode
    assert digest(path, cache) == digest_path(path)


def test_file_that_was_written_just_now_is_not_kept(tmp_path: Path, hashed: list[str]):
    path = write(tmp_path / "a", b"content", age_s=0)
    digest(path, tmp_path / "cache")
    digest(path, tmp_path / "cache")
    assert len(hashed) == 2


def test_file_written_while_it_is_hashed_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / "a", b"content")
    whole = digest_cache.hashlib.file_digest
    monkeypatch.setattr(
        digest_cache.hashlib, "file_digest", lambda file, name: (whole(file, name), write(path, b"CONTENT", 5))[0]
    )
    with pytest.raises(FileChangedError, match="a was written while it was hashed"):
        digest(path, tmp_path / "cache")


@pytest.mark.parametrize("damage", ["not a database", "no folder", "cannot be written"])
def test_unusable_cache_is_reported_once_and_files_are_hashed(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture, hashed: list[str]
):
    cache, paths = tmp_path / "cache", [write(tmp_path / str(i), b"%d" % i) for i in range(3)]
    cache.mkdir()
    if damage == "not a database":
        (cache / "digests.sqlite").write_bytes(b"x" * 10_000)
    elif damage == "no folder":
        cache = write(tmp_path / "file", b"")
    else:
        (cache / "digests.sqlite").mkdir()
    with caplog.at_level(logging.WARNING, "lsr_prod"):
        assert [digest(path, cache) for path in paths] == [digest_path(path) for path in paths]
    assert len(hashed) == 3
    (record,) = caplog.records
    assert record.fields["path"] == str(cache / "digests.sqlite")


def test_damaged_row_is_not_used(tmp_path: Path, hashed: list[str]):
    path, cache = write(tmp_path / "a", b"content"), tmp_path / "cache"
    digest(path, cache)
    for damage in ("UPDATE digests SET sha256 = ?", "UPDATE digests SET proof = ?"):
        with closing(sqlite3.connect(cache / "digests.sqlite")) as database, database:
            database.execute(damage, ("0" * 64,))
        assert digest(path, cache) == digest_path(path)
    assert len(hashed) == 3


def test_threads_and_other_caches_share_the_database(tmp_path: Path, hashed: list[str]):
    paths = [write(tmp_path / str(i), b"%d" % i) for i in range(200)]

    def run(_: int) -> list[str]:
        def one(path: Path) -> str:
            with path.open("rb") as file:
                return cache.digest(str(path), file)[0]

        with DigestCache(tmp_path / "cache") as cache, ThreadPoolExecutor(4) as pool:
            return list(pool.map(one, paths))

    with ThreadPoolExecutor(3) as pool:
        assert all(found == [digest_path(path) for path in paths] for found in pool.map(run, range(3)))
    hashed.clear()
    run(0)
    assert hashed == []


def test_large_file_is_hashed_by_one_reader_for_all(tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(digest_cache, "_LARGE", 1000)
    path = write(tmp_path / "large", b"x" * 10_000_000)
    with ThreadPoolExecutor(8) as pool:
        assert {*pool.map(lambda _: digest(path, tmp_path / "cache"), range(8))} == {digest_path(path)}
    assert len(hashed) == 1


def test_digests_of_files_that_no_run_named_for_long_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old, new, cache = write(tmp_path / "old", b"1"), write(tmp_path / "new", b"2"), tmp_path / "cache"
    digest(old, cache)
    digest(new, cache)
    today = digest_cache._today()
    monkeypatch.setattr(digest_cache, "_today", lambda: today + 80)
    digest(new, cache)
    monkeypatch.setattr(digest_cache, "_today", lambda: today + 95)
    digest(write(tmp_path / "newest", b"3"), cache)
    with closing(sqlite3.connect(cache / "digests.sqlite")) as database:
        assert [Path(path).name for (path,) in database.execute("SELECT path FROM digests ORDER BY path")] == [
            "new",
            "newest",
        ]


@pytest.mark.parametrize(("age_s", "settled"), [(1, False), (10, True)])
def test_time_in_the_future_is_settled_two_seconds_after_it_was_set(tmp_path: Path, age_s: int, settled: bool):
    path = write(tmp_path / "unpacked", b"content", age_s=-3600)
    with path.open("rb") as file:
        state = digest_cache.FileState.of(file)
    assert replace(state, seen_ns=state.ctime_ns + age_s * 10**9).settled is settled
