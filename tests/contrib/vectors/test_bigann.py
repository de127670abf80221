import gzip

import numpy as np
import pytest

from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.errors import ConfigError, LineageError, SourceError
from lsr_prod_contrib.vectors import find_vector_files, read_vectors


def csr(indptr, indices, data, *, rows=None, columns=14, values=None):
    sizes = [len(indptr) - 1 if rows is None else rows, columns, len(data) if values is None else values]
    arrays = [(sizes, "<i8"), (indptr, "<i8"), (indices, "<i4"), (data, "<f4")]
    return b"".join(np.array(array, kind).tobytes() for array, kind in arrays)


def read(folder, data, rules, name="base.csr"):
    (folder / name).write_bytes(data)
    [file] = find_vector_files([str(folder / name)], "csr")
    return [row for _, row in read_vectors(file, rules)]


def as_dict(row):
    return dict(zip(row.terms.tolist(), row.weights.tolist(), strict=True))


GOOD = csr([0, 2, 2, 3], [3, 0, 13], [0.5, 2.0, 1.25])


def test_rows_are_vectors_and_row_numbers_ids(rules, tmp_path):
    found = read(tmp_path, GOOD, rules)
    assert [row.doc_id for row in found] == ["0", "1", "2"]
    assert [as_dict(row) for row in found] == [{0: 2.0, 3: 0.5}, {}, {13: 1.25}]


def test_bytes_are_those_of_the_published_layout():
    assert GOOD[:24] == bytes.fromhex("0300000000000000 0e00000000000000 0300000000000000")
    assert len(GOOD) == 24 + 4 * 8 + 3 * 4 + 3 * 4


@pytest.mark.parametrize("name", ["base.csr", "base.csr.gz"])
def test_random_matrix_equals_that_of_scipy(rules, tmp_path, name):
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(700, 14, density=0.3, format="csr", dtype=np.float32, random_state=1)
    data = csr(matrix.indptr, matrix.indices, matrix.data)
    data = gzip.compress(data) if name.endswith(".gz") else data
    (tmp_path / "base.ids.txt").write_text("".join(f"doc {i}\n" for i in range(700)))
    found = read(tmp_path, data, rules, name)
    assert [row.doc_id for row in found] == [f"doc {i}" for i in range(700)]
    dense = matrix.toarray()
    assert [as_dict(row) for row in found] == [{int(t): float(row[t]) for t in np.flatnonzero(row)} for row in dense]


def test_columns_may_be_fewer_but_not_more_than_the_vocabulary(rules, tmp_path):
    assert len(read(tmp_path, csr([0, 1], [0], [1.0], columns=2), rules)) == 1
    with pytest.raises(LineageError, match="15 columns"):
        read(tmp_path, csr([0, 1], [0], [1.0], columns=15), rules)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:20],
        GOOD[:-1],
        GOOD + b"\0",
        csr([0, 1], [0], [1.0], rows=2**62),
        csr([0, 1], [0], [1.0], values=2**62),
        csr([0, 1], [0], [1.0], rows=-1),
        csr([0, 1], [0], [1.0], columns=-1),
        csr([0, 1], [0], [1.0], rows=2**62, values=-(2**62) + 1),
    ],
)
def test_sizes_that_do_not_fit_the_file_are_an_error(rules, tmp_path, data):
    with pytest.raises(SourceError, match="CSR file of BigANN"):
        read(tmp_path, data, rules)


def test_packed_file_that_is_longer_than_declared_is_not_unpacked_to_its_end(rules, tmp_path):
    data = gzip.compress(GOOD + bytes(50_000_000))
    with pytest.raises(SourceError, match="and has 10"):  # one block of 1 MiB
        read(tmp_path, data, rules, "base.csr.gz")


@pytest.mark.parametrize("indptr", [[1, 2, 2, 3], [0, 3, 2, 3], [0, 2, 2, 2], [0, -1, 2, 3], [0, 2, 2, 9]])
def test_bounds_that_are_none_end_with_a_damaged_row(rules, tmp_path, indptr):
    *_, last = read(tmp_path, csr(indptr, [3, 0, 13], [0.5, 2.0, 1.25]), rules)
    assert isinstance(last, BadRow)
    assert last.reason == "damaged_file"


def test_bad_values_and_columns_are_bad_rows(rules, tmp_path):
    found = read(tmp_path, csr([0, 1, 2, 4, 5], [0, -1, 2, 2, 5], [np.nan, 1, 1, 1, -2]), rules)
    assert [row.reason for row in found] == ["bad_weight", "unknown_term", "repeated_term", "bad_weight"]


def test_number_of_ids_has_to_be_that_of_the_rows(rules, tmp_path):
    for ids in ("a\nb\n", "a\nb\nc\nd\n"):
        (tmp_path / "base.ids.txt").write_text(ids)
        with pytest.raises(SourceError, match="ids"):
            read(tmp_path, GOOD, rules)


def test_folder_without_such_a_file_is_an_error(tmp_path):
    (tmp_path / "a.txt").touch()
    with pytest.raises(ConfigError, match=r"no file of \.csr"):
        find_vector_files([str(tmp_path)], "csr")
