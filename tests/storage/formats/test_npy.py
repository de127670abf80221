"""Arrays of one dimension against numpy, and damaged ones."""

import ast
import io

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lsr_prod import Searcher
from lsr_prod.errors import ArtifactError
from lsr_prod.storage.formats.pages import npy_bytes, parse_npy
from tests.indexing.corpus import Doc, make_index

arrays = st.builds(
    lambda dtype, items: np.array(items).astype(dtype),
    st.sampled_from(["<u2", "<u4", "<i4", "<i8", "u1", "<f4", "|b1"]),
    st.lists(st.integers(0, 255), max_size=40),
)


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@given(arrays)
def test_files_are_those_of_numpy(array):
    assert npy_bytes(array) == saved(array)
    read = parse_npy(saved(array), "a.npy", "copy it again")
    assert (read.dtype, read.tolist()) == (array.dtype, array.tolist())


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 2), np.float32), np.float32(1), np.array(["a"]), np.array([(1, 2.0)], "i4,f8"), np.zeros(3, complex)],
)
def test_other_arrays_are_refused(array):
    with pytest.raises(
        ArtifactError, match=r"a\.npy cannot be read \(not an array of numbers of one .*; copy it again"
    ):
        parse_npy(saved(array), "a.npy", "copy it again")


@given(array=arrays, at=st.integers(0, 200), byte=st.integers(0, 255), cut=st.none() | st.integers(0, 200))
@example(array=np.zeros(3, np.uint8), at=23, byte=ord("O"), cut=None)
@example(array=np.zeros(1, np.float32), at=23, byte=ord("1"), cut=None)  # f1, a type that numpy does not have
def test_damaged_file_is_an_artifact_error_or_what_numpy_reads(array, at, byte, cut):
    data = bytearray(saved(array))
    data[at : at + 1] = bytes([byte])[: len(data[at : at + 1])]
    damaged = bytes(data[:cut])
    try:
        read = parse_npy(damaged, "a.npy", "copy it again")
    except ArtifactError:
        return
    assert read.tobytes() == np.load(io.BytesIO(damaged), allow_pickle=False).tobytes()


def test_index_is_built_and_searched_without_the_evaluation_of_literals(tmp_path, monkeypatch):
    """In CPython 3.11 ``ast.literal_eval`` raises SystemError where threads call it, and so does ``numpy.load``."""

    def race(_):
        raise SystemError("AST constructor recursion depth mismatch")

    corpus = {f"d{i}": Doc({i % 5: 9, 5: 1}, f"text {i}") for i in range(60)}
    for name in ("first", "second"):  # the first one imports what evaluates literals while it is imported, as pandas
        make_index(tmp_path / name, corpus, vocabulary_size=8, deleted={"d7"}, shards=2)
        result = Searcher.open(tmp_path / name).search_vector({5: 1.0}, 100)
        assert {hit.doc_id for hit in result.hits} == set(corpus) - {"d7"}
        monkeypatch.setattr(ast, "literal_eval", race)
