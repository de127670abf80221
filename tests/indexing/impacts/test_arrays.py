"""Array files: appended to, and filled in any order."""

import errno
import os

import numpy as np
import pytest

from lsr_prod.indexing.impacts.vectors import GrowingArray, create_array


@pytest.mark.parametrize("dtype", ["<i8", "<u2", "u1", "<u4"])
@pytest.mark.parametrize("lengths", [[], [0], [3], [1, 0, 5, 100_000]])
def test_appended_items_are_read_by_numpy(tmp_path, dtype, lengths):
    parts = [np.arange(n).astype(dtype) for n in lengths]
    with GrowingArray(tmp_path / "a.npy", np.dtype(dtype)) as array:
        for part in parts:
            array.append(part)
        assert array.length == sum(lengths)
    found = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert found.dtype == np.dtype(dtype)
    assert found.tolist() == [x for part in parts for x in part.tolist()]


def test_growing_array_starts_with_first_item_and_converts_dtypes(tmp_path):
    with GrowingArray(tmp_path / "a.npy", np.dtype("<i8"), first=0) as array:
        array.append(np.array([7, 8], np.uint8))
    assert np.load(tmp_path / "a.npy").tolist() == [0, 7, 8]


def test_growing_array_does_not_overwrite_a_file(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"x")
    with pytest.raises(FileExistsError):
        GrowingArray(tmp_path / "a.npy", np.dtype("u1"))


def test_growing_array_file_equals_the_one_of_numpy(tmp_path):
    with GrowingArray(tmp_path / "a.npy", np.dtype("<i8")) as array:
        array.append(np.arange(12_345_678 // 1000))
    np.save(tmp_path / "b.npy", np.arange(12_345_678 // 1000))
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


@pytest.mark.parametrize("length", [0, 1, 1000])
def test_writes_to_a_created_array_reach_its_file(tmp_path, length):
    array = create_array(tmp_path / "a.npy", np.dtype("<u4"), length)
    assert array.tolist() == [0] * length
    array[::2] = 7
    assert np.load(tmp_path / "a.npy", allow_pickle=False).tolist() == [7 * (i % 2 == 0) for i in range(length)]


def test_created_array_has_room_before_it_is_mapped(tmp_path, monkeypatch):
    def full(descriptor, start, size):
        assert (start, size) == (128, 4000)
        raise OSError(errno.ENOSPC, "full")

    create_array(tmp_path / "a.npy", np.dtype("<u4"), 1000)
    assert (tmp_path / "a.npy").stat().st_blocks * 512 >= 4128  # a sparse file has fewer
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="full"):  # and not SIGBUS at the first write
        create_array(tmp_path / "b.npy", np.dtype("<u4"), 1000)


def test_array_that_is_given_up_closes_its_file(tmp_path):
    array = GrowingArray(tmp_path / "a.npy", np.dtype("u1"))
    file = array._file
    del array
    assert file.closed
