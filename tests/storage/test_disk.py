"""Errors of full and broken disks, by number or by the text of a library, become one sentence; all others pass."""

import errno
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.errors import ArtifactError, DiskFullError, StorageError
from lsr_prod.storage.disk import disk_error, draft_name, scratch_folder, writing
from lsr_prod.storage.drafts import Draft, create_file, write_file

TEXTS = [
    "Error while serializing: I/O error: No space left on device (os error 28)",  # safetensors
    'An IO error occurred: IoError { io_error: Os { code: 28, kind: StorageFull, message: "full" } }',  # Tantivy
    "Error writing bytes to file. Detail: [errno 28] No space left on device",  # Arrow
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_a_library_about_a_full_disk_names_place_and_remedy(text: str) -> None:
    with pytest.raises(DiskFullError) as raised, writing(Path("/out/model")):
        raise RuntimeError(text)
    said = "/out/model cannot be written ([Errno 28] No space left on device); free space or inodes on its disk, then"
    assert str(raised.value).startswith(said)


def test_thread_of_tantivy_that_does_not_say_why_it_failed_is_a_storage_error() -> None:
    said = "An index writer was killed.. A worker thread encountered an error (io::Error most likely) or panicked."
    with pytest.raises(StorageError, match=r"/out/index cannot .* most likely .*; free space"), writing("/out/index"):
        raise ValueError(f"An error occurred in a thread: '{said}'")


@pytest.mark.parametrize(
    ("number", "kind", "remedy"),
    [
        (errno.ENOSPC, DiskFullError, "free space or inodes"),
        (errno.EDQUOT, DiskFullError, "raise the quota"),
        (errno.EROFS, DiskFullError, "mount its disk for writing"),
        (errno.EIO, StorageError, "fix its disk"),
    ],
)
def test_number_decides_the_remedy(number: int, kind: type[StorageError], remedy: str) -> None:
    error = disk_error(OSError(number, os.strerror(number)), "/out")
    assert type(error) is kind
    assert remedy in str(error)


def test_error_names_the_file_under_its_final_name() -> None:
    path = f"/out/{draft_name('model')}/{draft_name('card.json')}"
    error = disk_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path), "/other")
    assert str(error).startswith("/out/model/card.json cannot be written")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("28"),
        ValueError("document 'x (os error 2)' is bad"),
        OSError(errno.ENOENT, "no such file", "x"),
        OSError("No space left on device"),  # of no system call: whoever raised it did not say where
        ArtifactError("Os { code: 28, kind: StorageFull }"),
    ],
)
def test_other_errors_pass(error: Exception) -> None:
    assert disk_error(error, "/out") is None
    with pytest.raises(type(error)) as raised, writing("/out"):
        raise error
    assert raised.value is error


def test_error_raised_from_one_of_the_disk_is_that_of_the_disk() -> None:
    wrapper, mistake = ValueError("cannot close"), NameError("log")
    wrapper.__cause__ = mistake.__context__ = OSError(errno.ENOSPC, "full")
    assert isinstance(disk_error(wrapper, "/out"), DiskFullError)
    assert disk_error(mistake, "/out") is None  # a mistake in the handling of the error


def test_draft_is_removed_and_named_by_its_target(tmp_path: Path) -> None:
    with pytest.raises(DiskFullError, match=rf"{tmp_path}/model cannot"), Draft(tmp_path / "model"):
        raise RuntimeError(TEXTS[0])
    assert list(tmp_path.iterdir()) == []


def test_device_without_room_is_named() -> None:
    full = Path("/dev/full")
    with pytest.raises(DiskFullError, match=r"/dev/full cannot"), writing(full), full.open("wb") as file:
        file.write(b"1")
    with pytest.raises(DiskFullError, match=r"/dev/full cannot"), writing(full), pa.OSFile("/dev/full", "wb") as sink:
        sink.write(b"1" * 10)


def test_scratch_is_named_with_its_folder_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(DiskFullError, match=rf"scratch in {tmp_path} cannot be written"), scratch_folder():
        raise OSError(errno.ENOSPC, "full")
    assert list(tmp_path.iterdir()) == []


def test_no_usable_folder_of_temporary_files_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(DiskFullError, match=r"found in \['/tmp'\]; free space there, or set TMPDIR"), scratch_folder():
        pass


def test_files_are_named_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for write in (lambda path: write_file(path, b"1"), lambda path: create_file(path, (b"1",))):
        with pytest.raises(DiskFullError, match=rf"{tmp_path}/new cannot be written .*free space or inodes"):
            write(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
