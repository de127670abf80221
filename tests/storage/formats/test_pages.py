"""Mapped files whose pages are verified on the first read."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError, DigestMismatchError
from lsr_prod.storage.formats.digests import digest_files
from lsr_prod.storage.formats.pages import PAGE, PAGE_DIGESTS_FILE, MappedFiles, PageDigests, VerifiedFile, page_digests

NAMES = ["a.npy", "b.bin", "empty.bin"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.arange(3 * PAGE // 8, dtype="<i8"))
    (tmp_path / "b.bin").write_bytes(bytes(range(256)) * 300)
    (tmp_path / "empty.bin").write_bytes(b"")
    (tmp_path / PAGE_DIGESTS_FILE).write_bytes(page_digests(tmp_path, NAMES))
    return tmp_path


def open_files(folder: Path, *, lazy: bool = True) -> MappedFiles:
    files = digest_files(folder, [*(folder / name for name in NAMES), folder / PAGE_DIGESTS_FILE])
    return MappedFiles(folder, files, NAMES, lazy=lazy)


def damage(path: Path, byte: int) -> None:
    with path.open("r+b") as file:
        file.seek(byte)
        value = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([value ^ 16]))


def test_digests_are_per_page_in_the_order_of_names(folder):
    found = []
    for name in NAMES:
        data = (folder / name).read_bytes()
        found += [hashlib.sha256(data[at : at + PAGE]).digest() for at in range(0, len(data), PAGE)]
    assert (folder / PAGE_DIGESTS_FILE).read_bytes() == b"".join(found)


@pytest.mark.parametrize("lazy", [True, False])
def test_mapped_files_hold_no_descriptor(folder, lazy):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    files = open_files(folder, lazy=lazy)
    array = files.array("a.npy")
    assert array.tolist() == list(range(3 * PAGE // 8))
    assert bytes(files.bytes_of("b.bin")[:4]) == b"\0\1\2\3"
    assert len(files.bytes_of("empty.bin")) == 0
    assert not array.flags.writeable
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_exactly_the_pages_read_are_verified(folder):
    files = open_files(folder)
    array = files.array("a.npy")
    for byte in (PAGE, 2 * PAGE - 1):
        damage(folder / "a.npy", byte)
        first = (PAGE - 128) // 8  # the first item on the damaged page
        files.verify_items(array, "a.npy", 0, first)
        for start, stop in [(first, first + 1), (0, len(array)), (first + PAGE // 8 - 1, len(array))]:
            with pytest.raises(DigestMismatchError, match=rf"a\.npy is damaged at byte {PAGE}"):
                open_files_like(files, folder).verify_items(array, "a.npy", start, stop)
        damage(folder / "a.npy", byte)
    files.verify_items(array, "a.npy", 0, len(array))


def open_files_like(files: MappedFiles, folder: Path) -> MappedFiles:
    """The same manifest, opened anew: the digests are those of the whole files."""
    listed = digest_files(folder, [folder / PAGE_DIGESTS_FILE])
    rest = digest_files(folder, [folder / name for name in NAMES])
    opened = MappedFiles(folder, (*rest, *listed), NAMES, lazy=True)
    assert opened.folder == files.folder
    return opened


def test_page_at_the_place_of_another_is_refused(folder):
    files = open_files(folder)
    data = (folder / "a.npy").read_bytes()
    (folder / "a.npy").write_bytes(data[:PAGE] + data[2 * PAGE : 3 * PAGE] + data[PAGE : 2 * PAGE] + data[3 * PAGE :])
    with pytest.raises(DigestMismatchError, match=rf"a\.npy is damaged at byte {PAGE}"):
        open_files_like(files, folder).verify("a.npy", PAGE, 3 * PAGE)


def test_verify_rows_finds_damage_in_any_page(folder):
    array = open_files(folder).array("a.npy")
    inside = PAGE // 8 + 5
    damage(folder / "a.npy", 2 * PAGE - 3)
    for starts, stops, found in [
        ([0, 3], [1, 3], False),
        ([0, inside], [1, inside + 1], True),
        ([0], [len(array)], True),  # one row that covers all pages
        ([len(array)], [len(array)], False),
        ([], [], False),
    ]:
        files = open_files(folder)
        if found:
            with pytest.raises(DigestMismatchError):
                files.verify_rows(array, "a.npy", np.array(starts), np.array(stops))
        else:
            files.verify_rows(array, "a.npy", np.array(starts, np.int64), np.array(stops, np.int64))


def test_buffer_outside_the_map_is_refused(folder):
    files = open_files(folder)
    raw = files.bytes_of("b.bin")
    files.verify_buffer("b.bin", raw.ctypes.data, len(raw))
    files.verify_buffer("b.bin", 0, 0)
    for address, size in [(raw.ctypes.data - 1, 1), (raw.ctypes.data + 1, len(raw))]:
        with pytest.raises(ArtifactError, match="outside the file"):
            files.verify_buffer("b.bin", address, size)


def open_verified(folder: Path, name: str) -> VerifiedFile:
    sizes = {each: (folder / each).stat().st_size for each in NAMES}
    digests = PageDigests((folder / PAGE_DIGESTS_FILE).read_bytes(), sizes, PAGE_DIGESTS_FILE)
    # The buffer of Python 3.14 holds 128 KiB, and would hide what happens to the file.
    return VerifiedFile((folder / name).open("rb", buffering=0), name, sizes[name], digests, name)


def test_verified_file_reads_the_pieces_of_the_file(folder):
    data, rng = (folder / "b.bin").read_bytes(), np.random.default_rng(2)
    with open_verified(folder, "b.bin") as raw:
        assert raw.seek(0, os.SEEK_END) == len(data)
        assert raw.read(5) == b""
        for at, size in zip(
            rng.integers(0, len(data), 50).tolist(), rng.integers(0, 3 * PAGE, 50).tolist(), strict=True
        ):
            raw.seek(at)
            assert raw.read(size) == data[at : at + size]
            assert raw.tell() == min(at + size, len(data))


@pytest.mark.parametrize("change", ["damaged", "truncated"])
def test_verified_file_refuses_pages_without_their_digest(folder, change):
    path = folder / "b.bin"
    with open_verified(folder, "b.bin") as raw:
        assert len(raw.read(2 * PAGE)) == 2 * PAGE
        if change == "truncated":
            os.truncate(path, PAGE + 5)
        else:
            damage(path, PAGE)
        raw.seek(0)
        assert len(raw.read(PAGE)) == PAGE
        with pytest.raises(DigestMismatchError, match=rf"b\.bin is damaged at byte {PAGE}"):
            raw.read(1)


def test_nothing_is_verified_without_lazy(folder):
    files = open_files(folder, lazy=False)
    damage(folder / "b.bin", 5)
    files.verify("b.bin", 0, 1 << 20)


@pytest.mark.parametrize("cut", ["a.npy", "b.bin", PAGE_DIGESTS_FILE])
def test_missing_or_truncated_file_raises(folder, cut):
    files = digest_files(folder, [*(folder / name for name in NAMES), folder / PAGE_DIGESTS_FILE])
    data = (folder / cut).read_bytes()
    (folder / cut).write_bytes(data[:-1])
    with pytest.raises(ArtifactError, match="another size"):
        MappedFiles(folder, files, NAMES, lazy=True)
    (folder / cut).unlink()
    with pytest.raises(ArtifactError, match="missing"):
        MappedFiles(folder, files, NAMES, lazy=False)


def test_damaged_missing_or_foreign_digests_raise(folder):
    names = [*(folder / name for name in NAMES), folder / PAGE_DIGESTS_FILE]
    whole = digest_files(folder, names)
    with pytest.raises(ArtifactError, match=rf"lacks {PAGE_DIGESTS_FILE}"):
        MappedFiles(folder, digest_files(folder, names[:-1]), NAMES, lazy=True)
    with pytest.raises(ArtifactError, match=r"lacks other"):
        MappedFiles(folder, whole, ["other"], lazy=False)
    damage(folder / PAGE_DIGESTS_FILE, 130)
    with pytest.raises(DigestMismatchError):
        MappedFiles(folder, whole, NAMES, lazy=True)
    (folder / PAGE_DIGESTS_FILE).write_bytes(page_digests(folder, NAMES[1:]))
    with pytest.raises(ArtifactError, match="does not fit the files"):
        MappedFiles(folder, digest_files(folder, names), NAMES, lazy=True)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93NUMPY\x01\x00", b"x" * 500, b"\x93NUMPY\x02\x00" + b"\0" * 200],
    ids=["empty", "short", "text", "version"],
)
def test_file_that_is_no_array_raises(folder, content):
    (folder / "a.npy").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"a\.npy"):
        open_files(folder, lazy=False).array("a.npy")


@pytest.mark.parametrize("array", [np.zeros((2, 2)), np.array([{}], object), np.array(3)])
def test_array_of_objects_or_other_shape_raises(folder, array):
    np.save(folder / "a.npy", array, allow_pickle=True)
    with pytest.raises(ArtifactError, match=r"a\.npy"):
        open_files(folder, lazy=False).array("a.npy")
