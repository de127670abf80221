"""Files of arrays that grow, or are filled."""

import numpy as np
import pytest

from lsr_prod.indexing.arrays import GrowingArray, filled_array


@pytest.mark.parametrize("dtype", ["<i8", "<u2", "u1", "<u4"])
@pytest.mark.parametrize("lengths", [[], [0], [3], [1, 0, 5, 100_000]])
def test_what_is_appended_is_read_by_numpy(tmp_path, dtype, lengths):
    parts = [np.arange(n).astype(dtype) for n in lengths]
    with GrowingArray(tmp_path / "a.npy", np.dtype(dtype)) as array:
        for part in parts:
            array.append(part)
        assert array.length == sum(lengths)
    found = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert found.dtype == np.dtype(dtype)
    assert found.tolist() == [x for part in parts for x in part.tolist()]


def test_a_first_item_and_other_types(tmp_path):
    with GrowingArray(tmp_path / "a.npy", np.dtype("<i8"), first=0) as array:
        array.append(np.array([7, 8], np.uint8))
    assert np.load(tmp_path / "a.npy").tolist() == [0, 7, 8]


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"x")
    with pytest.raises(FileExistsError):
        GrowingArray(tmp_path / "a.npy", np.dtype("u1"))


def test_it_begins_as_numpys_own_files_do(tmp_path):
    with GrowingArray(tmp_path / "a.npy", np.dtype("<i8")) as array:
        array.append(np.arange(12_345_678 // 1000))
    np.save(tmp_path / "b.npy", np.arange(12_345_678 // 1000))
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


@pytest.mark.parametrize("length", [0, 1, 1000])
def test_a_filled_array_is_its_file(tmp_path, length):
    array = filled_array(tmp_path / "a.npy", np.dtype("<u4"), length)
    assert array.tolist() == [0] * length
    array[::2] = 7
    assert np.load(tmp_path / "a.npy", allow_pickle=False).tolist() == [7 * (i % 2 == 0) for i in range(length)]
