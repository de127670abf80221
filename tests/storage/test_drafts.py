"""Drafts: a file or folder has its name only when it is complete."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lsr_prod.errors import DigestMismatchError, DiskFullError, StorageError
from lsr_prod.storage.drafts import (
    Draft,
    append_file,
    copy_files,
    copy_tree,
    create_file,
    draft_name,
    is_draft,
    link_file,
    new_file,
    remove,
    sentinel,
    write_file,
)
from lsr_prod.storage.formats.digests import digest_folder


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_draft_names_are_recognized_with_and_without_folder() -> None:
    name = draft_name("model")
    assert name != draft_name("model")
    assert is_draft(name)
    assert is_draft(f"folder/{name}")
    assert not any(map(is_draft, ("model", ".model.tmp", f"{name}/inside", "x.tmp")))


def test_sealed_draft_becomes_the_target(tmp_path: Path) -> None:
    with Draft(tmp_path / "a" / "model") as draft:
        (draft.folder / "weights").write_bytes(b"x")
        assert names(tmp_path / "a") == [draft.folder.name, f"{draft.folder.name}/weights"]
        assert draft.seal()
    assert names(tmp_path) == ["a", "a/model", "a/model/weights"]


def test_draft_that_is_not_sealed_is_removed(tmp_path: Path) -> None:
    def fail() -> None:
        with Draft(tmp_path / "model") as draft:
            (draft.folder / "weights").write_bytes(b"x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names(tmp_path) == []


def test_seal_replaces_an_empty_folder_and_keeps_one_with_content(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "old").write_bytes(b"old")
    for name, sealed in (("empty", True), ("full", False)):
        with Draft(tmp_path / name) as draft:
            (draft.folder / "new").write_bytes(b"new")
            assert draft.seal() is sealed
    assert names(tmp_path) == ["empty", "empty/new", "full", "full/old"]


def test_seal_over_a_file_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with Draft(tmp_path / "file") as draft, pytest.raises(OSError, match="file"):
        draft.seal()
    assert names(tmp_path) == ["file"]


def test_new_file_appears_whole_and_replaces_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "a" / "file"
    with new_file(path) as file:
        file.write(b"one")
        assert not path.exists()
    with pytest.raises(StorageError, match="exists already"), new_file(path) as file:
        file.write(b"two")
    assert path.read_bytes() == b"one"
    write_file(path, b"three")
    assert path.read_bytes() == b"three"
    assert names(tmp_path) == ["a", "a/file"]


def test_create_file_writes_nothing_if_its_chunks_raise(tmp_path: Path) -> None:
    def chunks():
        yield b"half"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        create_file(tmp_path / "file", chunks())
    assert names(tmp_path) == []
    assert create_file(tmp_path / "file", [b"one"])
    assert not create_file(tmp_path / "file", [b"two"])
    assert (tmp_path / "file").read_bytes() == b"one"


def test_copy_files_copies_listed_files_and_checks_them(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a").write_bytes(b"a")
    files = digest_folder(source)
    (source / "other").write_bytes(b"not listed")
    copy_files(source, tmp_path / "copy", files)
    assert names(tmp_path / "copy") == ["sub", "sub/a"]
    (source / "sub" / "a").write_bytes(b"b")
    with pytest.raises(DigestMismatchError):
        copy_files(source, tmp_path / "again", files)


def test_copy_tree_copies(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_bytes(b"a")
    (tmp_path / "source" / "b").mkdir()
    (tmp_path / "source" / "b" / "c").write_bytes(b"c")
    (tmp_path / "copy").mkdir()
    copy_tree(tmp_path / "source", tmp_path / "copy")
    assert (tmp_path / "copy" / "a").stat().st_nlink == 1
    assert names(tmp_path / "copy") == ["a", "b", "b/c"]


def test_remove_returns_bytes_and_gives_a_folder_its_name_back(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    folder.mkdir()
    (folder / "a").write_bytes(b"abc")
    assert remove(folder, unless=lambda draft: (draft / "a").is_file()) == 0
    assert names(tmp_path) == ["shard", "shard/a"]
    assert remove(folder, unless=lambda _: False) == 3
    (tmp_path / "file").write_bytes(b"xy")
    assert remove(tmp_path / "file") == 2
    assert names(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        remove(tmp_path / "file")


def test_seal_syncs_every_parent_folder_that_was_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("lsr_prod.storage.drafts.sync_folder", synced.append)
    with Draft(tmp_path / "a" / "b" / "c") as draft:
        (draft.folder / "file").write_bytes(b"x")
        assert draft.seal()
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)


def test_threads_create_files_of_one_new_folder_at_the_same_time(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for attempt in range(50):
            folder = tmp_path / str(attempt) / "a" / "b"
            assert all(pool.map(lambda name, at=folder: create_file(at / str(name), [b"x"]), range(8)))


def test_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file is a file, not a folder; give a new path"):
        create_file(tmp_path / "file" / "name", [b"x"])


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, frozenset[str]]]:
    """Return what is flushed to the disk: each file or folder, with its content or the names in it at that moment."""
    found: list[tuple[str, frozenset[str]]] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        content = {each.name for each in path.iterdir()} if path.is_dir() else {path.read_text()}
        found.append((path.name, frozenset(content)))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return found


@pytest.mark.parametrize("how", ["create", "write", "replace", "link"])
def test_file_is_on_the_disk_before_its_name_and_its_name_before_the_call_ends(
    tmp_path: Path, flushed: list[tuple[str, frozenset[str]]], how: str
) -> None:
    path = tmp_path / "folder" / "file"
    if how == "create":
        create_file(path, [b"content"])
    elif how == "link":
        (tmp_path / "given").write_text("content")
        link_file(tmp_path / "given", path)
    else:
        if how == "replace":
            write_file(path, b"old")
        write_file(path, b"content")
    assert path.read_text() == "content"
    assert names(tmp_path / "folder") == ["file"]
    assert flushed[0][0] == tmp_path.name  # the new folder
    assert "folder" in flushed[0][1]
    assert flushed[-1] == ("folder", frozenset({"file"}))
    if how != "link":
        assert is_draft(flushed[-2][0])
        assert flushed[-2][1] == {"content"}


def test_sealed_folder_is_on_the_disk_with_its_files_before_its_name(
    tmp_path: Path, flushed: list[tuple[str, frozenset[str]]]
) -> None:
    with Draft(tmp_path / "model") as draft:
        (draft.folder / "inside").mkdir()
        (draft.folder / "inside" / "weights").write_text("content")
        assert draft.seal()
    assert ("weights", frozenset({"content"})) in flushed
    assert ("inside", frozenset({"weights"})) in flushed
    assert (draft.folder.name, frozenset({"inside"})) in flushed
    assert flushed[-1] == (tmp_path.name, frozenset({"model"}))


def test_failed_write_is_a_storage_error_and_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("a file")

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with pytest.raises(StorageError, match="given by the block"), new_file(tmp_path / "new"):
        raise StorageError("given by the block")
    with pytest.raises(StorageError, match=r"log cannot be written .*; fix the disk"):
        append_file(tmp_path / "file" / "log")
    with append_file(tmp_path / "logs" / "log") as log:
        log.write("a line")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"new cannot be written \(no space left on device\); fix the disk"):
        write_file(tmp_path / "new", b"content")
    with pytest.raises(OSError, match="no space"):
        create_file(tmp_path / "new", [b"content"])
    with pytest.raises(StorageError, match=r"logs cannot be written \(no space"), sentinel(tmp_path / "logs"):
        pass
    monkeypatch.undo()
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        link_file(tmp_path / "file", tmp_path / "new")
    assert names(tmp_path) == ["file", "logs", "logs/log"]


def test_new_file_whose_folder_cannot_be_flushed_does_not_refuse_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("lsr_prod.storage.drafts.sync_folder", full)
    with pytest.raises(DiskFullError, match="new cannot be written"), new_file(tmp_path / "new") as file:
        file.write(b"first")
    assert names(tmp_path) == []
    with pytest.raises(DiskFullError, match="new cannot be written"):
        write_file(tmp_path / "new", b"kept")
    assert names(tmp_path) == ["new"]  # the file of that name is gone in any case
    monkeypatch.undo()
    (tmp_path / "new").unlink()
    with new_file(tmp_path / "new") as file:
        file.write(b"second")
    assert (tmp_path / "new").read_bytes() == b"second"


def test_draft_of_a_full_disk_raises_the_error_that_says_so_once(tmp_path: Path) -> None:
    with (
        pytest.raises(DiskFullError, match=r"model cannot be written .*; free space") as full,
        Draft(tmp_path / "model"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert isinstance(full.value.__cause__, OSError)
    with pytest.raises(DiskFullError, match=r"^said$") as said, Draft(tmp_path / "model"):
        raise DiskFullError("said")
    assert said.value.__cause__ is None
    assert names(tmp_path) == []


def test_two_writers_of_one_name_never_replace_each_other(tmp_path: Path) -> None:
    def late():
        yield b"ours"
        (tmp_path / "file").write_bytes(b"theirs")

    assert not create_file(tmp_path / "file", late())
    assert (tmp_path / "file").read_bytes() == b"theirs"
    (tmp_path / "other").mkdir()
    with Draft(tmp_path / "other") as draft:
        (draft.folder / "ours").touch()
        (tmp_path / "other" / "theirs").touch()
        assert not draft.seal()
    assert names(tmp_path) == ["file", "other", "other/theirs"]


def test_sentinel_is_a_draft_that_disappears_with_the_folders_made_for_it(tmp_path: Path) -> None:
    with sentinel(tmp_path / "a" / "b") as path:
        assert path.is_file()
        assert is_draft(path.name)
    assert names(tmp_path) == []
    with sentinel(tmp_path / "a" / "b"):
        (tmp_path / "a" / "file").touch()  # of another process
    assert names(tmp_path) == ["a", "a/file"]
    with sentinel(tmp_path / "a"):
        pass
    assert names(tmp_path) == ["a", "a/file"]


def test_link_replaces_the_file_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("one")
    (tmp_path / "two").write_text("two")
    link_file(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two").samefile(tmp_path / "one")


def test_removed_folder_is_a_draft_before_its_files_are_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "shard"
    (folder / "inside").mkdir(parents=True)
    (folder / "inside" / "file").write_text("four")
    asked: list[str] = []
    assert remove(folder, unless=lambda draft: bool(asked.append(draft.name))) == 4
    assert is_draft(asked[0])
    left = tmp_path / asked[0]  # by a process that was killed during the removal
    (left / "inside").mkdir(parents=True)
    assert remove(left, unless=lambda _: True) == 0
    assert names(tmp_path) == []


def test_seal_that_the_disk_refuses_is_an_error_and_no_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(Path, "rename", refuse)
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        with Draft(tmp_path / name) as draft, pytest.raises(OSError, match="input/output error"):
            draft.seal()


def test_chunks_for_a_taken_name_are_not_read(tmp_path: Path) -> None:
    def chunks():
        raise ZeroDivisionError
        yield b""

    (tmp_path / "file").write_bytes(b"one")
    assert not create_file(tmp_path / "file", chunks())


def test_sentinel_keeps_an_empty_folder_and_removal_needs_no_question(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with sentinel(tmp_path / "empty"):
        pass
    assert names(tmp_path) == ["empty"]
    assert remove(tmp_path / "empty") == 0
    assert names(tmp_path) == []


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    write_file(tmp_path / "a" / "file", b"x")
    with Draft(tmp_path / "b") as draft:
        (draft.folder / "file").touch()
        draft.seal()
    open_files = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    assert [path for path in open_files if path.startswith(str(tmp_path))] == []


def test_folder_that_cannot_be_listed_is_not_copied_in_part(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    with pytest.raises(FileNotFoundError):
        copy_tree(tmp_path / "missing", tmp_path / "target")
