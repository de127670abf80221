"""Consistency checks of the arrays of a shard."""

from pathlib import Path

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.digest import digest_files
from lsr_prod.formats.pages import MappedFiles
from lsr_prod.formats.shard import (
    FORWARD_ARRAYS,
    MATCHING_ARRAYS,
    ImpactArrays,
    array_name,
    local_dtype,
    term_dtype,
)

# Two documents: the first has terms 0 and 2, the second 2.
GOOD = {
    "term_runs": np.array([0, 1, 1, 2], "<u4"),
    "term_postings": np.array([0, 1, 1, 3], "<i8"),
    "run_gaps": np.array([1, 1], "u1"),
    "run_counts": np.array([0, 1], "u1"),
    "run_maxima": np.array([9, 5], "u1"),
    "ids": np.array([0, 0, 1], "u1"),
    "impacts": np.array([9, 5, 4], "u1"),
    "id_order": np.array([1, 0], "<u4"),
    "id_rank": np.array([1, 0], "<u4"),
    "forward_offsets": np.array([0, 2, 3], "<i8"),
    "forward_terms": np.array([0, 2, 2], "<u2"),
    "forward_impacts": np.array([9, 5, 4], "u1"),
}


def open_arrays(folder: Path, arrays, *, documents: int = 2, block_size: int = 256) -> ImpactArrays:
    (folder / "impacts").mkdir()
    for name, array in arrays.items():
        np.save(folder / array_name(name), array)
    names = [array_name(name) for name in arrays]
    files = MappedFiles(folder, digest_files(folder, [folder / name for name in names]), names, lazy=False)
    return ImpactArrays.open(files, documents=documents, block_size=block_size)


def test_consistent_arrays_open_unchanged(tmp_path):
    found = open_arrays(tmp_path, GOOD)
    for name, array in GOOD.items():
        assert getattr(found, name).tolist() == array.tolist()


@pytest.mark.parametrize("name", GOOD)
def test_array_of_another_length_or_type_raises(tmp_path, name):
    wrong = [GOOD[name][:-1], np.append(GOOD[name], GOOD[name][-1:]), GOOD[name].astype(np.float32)]
    for number, array in enumerate([*wrong, GOOD[name].astype(">i8")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(ArtifactError, match="contradict each other"):
            open_arrays(folder, {**GOOD, name: array})


@pytest.mark.parametrize(
    ("documents", "block_size"), [(1, 256), (3, 256), (2, 257), (2, 0), (2, -1), (2, (1 << 16) + 1), (2, 1 << 40)]
)
def test_other_document_count_or_block_size_raises(tmp_path, documents, block_size):
    with pytest.raises(ArtifactError, match="contradict each other"):
        open_arrays(tmp_path, GOOD, documents=documents, block_size=block_size)


@pytest.mark.parametrize("name", ["term_runs", "term_postings", "forward_offsets"])
def test_offsets_that_do_not_end_at_the_array_length_raise(tmp_path, name):
    array = GOOD[name].copy()
    array[-1] += 1
    with pytest.raises(ArtifactError, match="contradict each other"):
        open_arrays(tmp_path, {**GOOD, name: array})


def test_types_are_as_small_as_possible():
    assert [local_dtype(size).itemsize for size in (1, 256, 257, 1 << 16)] == [1, 1, 2, 2]
    assert [term_dtype(size).itemsize for size in (1, 1 << 16, (1 << 16) + 1)] == [2, 2, 4]
    assert {*MATCHING_ARRAYS, *FORWARD_ARRAYS, "id_order", "id_rank"} == {*GOOD, "term_ids", "term_impacts"}


def test_compressed_shard_has_offsets_of_items(tmp_path):
    items = {"term_ids": GOOD["term_postings"], "term_impacts": np.array([0, 0, 0, 2], "<i8")}
    compressed = {**GOOD, **items, "impacts": GOOD["impacts"][1:]}
    for name in ("good", "long", "short", "half"):
        (tmp_path / name).mkdir()
    assert open_arrays(tmp_path / "good", compressed).compressed
    with pytest.raises(ArtifactError, match="contradict each other"):
        open_arrays(tmp_path / "long", {**compressed, "impacts": GOOD["impacts"]})
    with pytest.raises(ArtifactError, match="contradict each other"):
        open_arrays(tmp_path / "short", {**compressed, "term_ids": items["term_ids"][1:]})
    with pytest.raises(ArtifactError, match="term_impacts"):
        open_arrays(tmp_path / "half", {name: array for name, array in compressed.items() if name != "term_impacts"})
