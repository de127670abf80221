"""Consistency checks of the arrays of a shard."""

from pathlib import Path

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError
from lsr_prod.storage.formats.digests import digest_files
from lsr_prod.storage.formats.pages import MappedFiles
from lsr_prod.storage.formats.shard_format import FORWARD_ARRAYS, MATCHING_ARRAYS, ImpactArrays, array_name, term_dtype

# Two documents: the first has terms 0 and 2, the second 2.
GOOD = {
    "term_runs": np.array([0, 1, 1, 2], "<u4"),
    "term_postings": np.array([0, 1, 1, 3], "<u4"),
    "term_ids": np.array([0, 1, 1, 3], "<u4"),
    "term_tenths": np.array([0, 0, 0], "u1"),
    "term_hundredths": np.array([0, 0, 0], "u1"),
    "run_windows": np.array([0, 0], "<u2"),
    "run_counts": np.array([0, 1], "<u2"),
    "ids": np.array([0, 0, 1], "<u2"),
    "impacts": np.array([9, 5, 4], "u1"),
    "forward_offsets": np.array([0, 2, 3], "<u4"),
    "forward_terms": np.array([0, 2, 2], "<u2"),
    "forward_impacts": np.array([9, 5, 4], "u1"),
}


def open_arrays(folder: Path, arrays, *, documents: int = 2) -> ImpactArrays:
    (folder / "impacts").mkdir()
    for name, array in arrays.items():
        np.save(folder / array_name(name), array)
    names = [array_name(name) for name in arrays]
    files = MappedFiles(folder, digest_files(folder, [folder / name for name in names]), names, lazy=False)
    return ImpactArrays.open(files, documents=documents)


def test_consistent_arrays_open_unchanged(tmp_path):
    found = open_arrays(tmp_path, GOOD)
    for name, array in GOOD.items():
        assert getattr(found, name).tolist() == array.tolist()


@pytest.mark.parametrize("name", GOOD)
def test_array_of_another_length_or_type_raises(tmp_path, name):
    wrong = [GOOD[name][:-1], np.append(GOOD[name], GOOD[name][-1:]), GOOD[name].astype(np.float32)]
    for number, array in enumerate([*wrong, GOOD[name].astype("<i8"), GOOD[name].astype(">i8")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(ArtifactError, match="contradict each other"):
            open_arrays(folder, {**GOOD, name: array})


@pytest.mark.parametrize("name", ["term_runs", "forward_offsets", "forward_terms"])
def test_signed_or_swapped_items_raise(tmp_path, name):
    for number, kind in enumerate((GOOD[name].dtype.newbyteorder(">"), f"<i{GOOD[name].itemsize}")):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(ArtifactError, match="contradict each other"):
            open_arrays(folder, {**GOOD, name: GOOD[name].astype(kind)})


def test_wide_terms_open(tmp_path):
    found = open_arrays(tmp_path, {**GOOD, "forward_terms": GOOD["forward_terms"].astype("<i4")})
    assert found.forward_terms.dtype == np.int32


@pytest.mark.parametrize("documents", [0, 1, 3])
def test_other_document_count_raises(tmp_path, documents):
    with pytest.raises(ArtifactError, match="contradict each other"):
        open_arrays(tmp_path, GOOD, documents=documents)


@pytest.mark.parametrize("name", ["term_runs", "term_postings", "term_ids", "forward_offsets"])
@pytest.mark.parametrize("change", [1, -1])
def test_offsets_that_do_not_end_at_the_array_length_raise(tmp_path, name, change):
    array = GOOD[name].copy()
    array[-1] = int(array[-1]) + change
    with pytest.raises(ArtifactError, match="contradict each other"):
        open_arrays(tmp_path, {**GOOD, name: array})


def test_arrays_of_another_release_are_named(tmp_path):
    former = {name: array for name, array in GOOD.items() if name != "run_windows"}
    with pytest.raises(ArtifactError, match="built by another release of lsr_prod; build the index again"):
        open_arrays(tmp_path, former)


def test_types_are_as_small_as_possible():
    assert [term_dtype(size).itemsize for size in (1, 1 << 16, (1 << 16) + 1)] == [2, 2, 4]
    assert (*MATCHING_ARRAYS, *FORWARD_ARRAYS) == tuple(GOOD)
