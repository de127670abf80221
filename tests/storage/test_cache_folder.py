"""Eviction from the node cache, leftovers, and locks."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.errors import StorageError
from lsr_prod.storage.cache_folder import artifacts_in, files_in, locked, make_room, mark_used
from lsr_prod.storage.disk import draft_name
from lsr_prod.storage.formats.digests import FileDigest


def room_for(cache: Path, needed: Mapping[str, FileDigest], quota: int | None) -> SimpleNamespace:
    """Make room; return the files to fetch, and the number of artifacts that were evicted."""
    before = len(artifacts_in(cache))
    missing = make_room(cache, needed, quota)
    return SimpleNamespace(missing=missing, evicted=before - len(artifacts_in(cache)))


def sha(content: int) -> str:
    return f"{content:064x}"


def needs(*contents: int) -> dict[str, FileDigest]:
    """Files by sha256; the size of content n is n bytes."""
    return {sha(one): FileDigest(f"f{one}", sha(one), one) for one in contents}


def add(cache: Path, number: int, contents: set[int], used: int) -> Path:
    """A version with links to files, last used at a second."""
    version = cache / "artifacts" / "one" / sha(number)
    (version / "impacts").mkdir(parents=True)
    (cache / "files").mkdir(exist_ok=True)
    for one in contents:
        path = cache / "files" / sha(one)
        if not path.exists():
            path.write_bytes(bytes(one))
        os.link(path, version / "impacts" / f"f{one}")
    mark = mark_used(version)
    assert mark is not None
    os.utime(mark, (used, used))
    os.close(mark)
    return version


def test_shared_files_count_once_and_are_deleted_with_the_last_artifact(tmp_path: Path) -> None:
    add(tmp_path, 1, {10, 20}, used=1)
    add(tmp_path, 2, {20, 30}, used=2)
    room = room_for(tmp_path, needs(30, 40), 100)
    assert ([file.size for file in room.missing], room.evicted) == ([40], 0)
    room = room_for(tmp_path, needs(30, 40), 99)
    assert ([file.size for file in room.missing], room.evicted) == ([40], 1)
    assert [path.name for path in artifacts_in(tmp_path)] == [sha(2)]
    assert files_in(tmp_path) == {sha(20): 20, sha(30): 30}


def test_a_draft_that_another_reader_removes_meanwhile_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = add(tmp_path, 1, {10}, used=1) / draft_name("000002.json")
    draft.touch()
    is_file = Path.is_file

    def removed_after(path: Path) -> bool:
        found = is_file(path)
        if path == draft:
            path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "is_file", removed_after)
    assert [file.size for file in room_for(tmp_path, needs(10, 20), 100).missing] == [20]
    assert not draft.exists()


def test_artifact_in_use_is_kept_and_the_next_is_evicted(tmp_path: Path) -> None:
    first, _ = add(tmp_path, 1, {10}, used=1), add(tmp_path, 2, {11}, used=2)
    mark = mark_used(first)
    assert mark is not None
    assert room_for(tmp_path, needs(12), 25).evicted == 1
    assert artifacts_in(tmp_path) == [first]
    with pytest.raises(StorageError, match=r"needs 12 bytes, 22 with the artifacts in use.*quota of 21"):
        room_for(tmp_path, needs(12), 21)
    os.close(mark)
    assert room_for(tmp_path, needs(12), 21).evicted == 1
    assert mark_used(first) is None


def test_leftovers_are_deleted_except_needed_partial_files(tmp_path: Path) -> None:
    version = add(tmp_path, 1, {10}, used=1)
    version.with_name(draft_name(version.name)).mkdir()
    for name in (sha(11), f"{sha(12)}.part", f"{sha(13)}.part", "mine.txt"):
        (tmp_path / "files" / name).write_bytes(b"x")
    (tmp_path / "files" / sha(14)).write_bytes(b"cut")
    room = room_for(tmp_path, needs(10, 12, 14), None)
    assert [file.size for file in room.missing] == [12, 14]
    left = {path.name for path in (tmp_path / "files").iterdir()}
    assert left == {sha(10), f"{sha(12)}.part", "mine.txt"}
    assert [path.name for path in (tmp_path / "artifacts" / "one").iterdir() if path.is_dir()] == [version.name]


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sets(st.integers(1, 40), min_size=1, max_size=5), max_size=5),
    st.sets(st.integers(1, 40), min_size=1, max_size=5),
    st.integers(1, 200),
    st.integers(0, 31),
)
def test_make_room_agrees_with_a_plain_count(
    tmp_path_factory: pytest.TempPathFactory, versions: list[set[int]], needed: set[int], quota: int, in_use: int
) -> None:
    cache = tmp_path_factory.mktemp("cache")
    places = [add(cache, i, contents, used=i + 1) for i, contents in enumerate(versions)]
    marks = [mark_used(place) for i, place in enumerate(places) if in_use >> i & 1]
    os_marks = [mark for mark in marks if mark is not None]
    for i, place in enumerate(places):
        os.utime(place.with_name(f"{place.name}.use"), (i + 1, i + 1))
    kept = list(range(len(versions)))
    for i in range(len(versions)):
        if sum(needed.union(*(versions[j] for j in kept))) > quota and not in_use >> i & 1:
            kept.remove(i)
    if sum(needed.union(*(versions[j] for j in kept))) > quota:
        with pytest.raises(StorageError, match="raise the quota"):
            room_for(cache, needs(*needed), quota)
        kept = list(range(len(versions)))
        stored = set().union(*versions)
    else:
        room = room_for(cache, needs(*needed), quota)
        assert {file.size for file in room.missing} == needed - set().union(*versions)
        stored = (needed & set().union(*versions)).union(*(versions[j] for j in kept))
    assert artifacts_in(cache) == [places[j] for j in kept]
    assert set(files_in(cache).values()) == stored
    for mark in os_marks:
        os.close(mark)


def test_lock_excludes_other_threads(tmp_path: Path) -> None:
    inside: list[int] = []
    most = []

    def work() -> None:
        for _ in range(20):
            with locked(tmp_path / "a" / "lock"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) == 80
