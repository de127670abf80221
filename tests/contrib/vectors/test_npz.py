import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.errors import LineageError, LsrError, SourceError, StorageError
from lsr_prod_contrib.vectors.npz import CsrBlock, read_ids, write_csr
from lsr_prod_contrib.vectors.read import find_vector_files, read_vectors
from tests.contrib.vectors.conftest import TERMS

V = len(TERMS)


@pytest.fixture(scope="session")
def sparse():
    return pytest.importorskip("scipy.sparse")


def blocks_of(rows: list[dict[int, float]], size: int) -> list[CsrBlock]:
    made = []
    for start in range(0, len(rows), size):
        part = [dict(sorted(row.items())) for row in rows[start : start + size]]
        made.append(
            CsrBlock(
                [f"d{start + i}" for i in range(len(part))],
                np.array([len(row) for row in part], np.int64),
                np.array([term for row in part for term in row], np.int32),
                np.array([weight for row in part for weight in row.values()], np.float32),
            )
        )
    return made


def read(path, rules):
    (file,) = find_vector_files([str(path)], "npz")
    return [row for _, row in read_vectors(file, rules)]


def as_dict(row) -> dict[int, float]:
    return dict(zip(row.terms.tolist(), row.weights.tolist(), strict=True))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.integers(0, V - 1), st.floats(2**-10, 2**10, width=32), max_size=V), max_size=9),
    size=st.integers(1, 4),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_written_matrix_is_read_by_scipy_and_lsr_prod(sparse, rules, tmp_path_factory, rows, size, dtype):
    folder = tmp_path_factory.mktemp("npz")
    assert write_csr(folder / "a.npz", folder / "a.ids.jsonl", blocks_of(rows, size), V, dtype)[0] == len(rows)
    matrix = sparse.load_npz(folder / "a.npz")
    assert (matrix.format, matrix.shape, matrix.dtype) == ("csr", (len(rows), V), np.dtype(dtype))
    assert matrix.has_canonical_format
    dense = matrix.toarray()
    assert [{int(t): float(dense[i, t]) for t in np.flatnonzero(dense[i])} for i in range(len(rows))] == rows
    found = read(folder / "a.npz", rules)
    assert [as_dict(row) for row in found] == rows
    assert [row.doc_id for row in found] == [f"d{i}" for i in range(len(rows))]


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float64"])
@pytest.mark.parametrize("compressed", [True, False])
def test_matrix_written_by_scipy_is_read(sparse, rules, tmp_path, dtype, compressed):
    random = np.random.default_rng(3)
    dense = random.integers(0, 3, (700, V)) * random.integers(0, 2, (700, V))
    matrix = sparse.csr_matrix(dense.astype(dtype))
    sparse.save_npz(tmp_path / "m.npz", matrix, compressed=compressed)
    (tmp_path / "m.ids.txt").write_text("".join(f"née {i}\n" for i in range(700)))
    found = read(tmp_path / "m.npz", rules)
    assert [row.doc_id for row in found] == [f"née {i}" for i in range(700)]
    assert [as_dict(row) for row in found] == [{int(t): float(row[t]) for t in np.flatnonzero(row)} for row in dense]


def arrays(**changes):
    good = {
        "data": np.array([1.0, 2.0, 3.0]),
        "indices": np.array([0, 1, 2], np.int32),
        "indptr": np.array([0, 1, 1, 3], np.int32),
        "shape": np.array([3, V]),
        "format": np.array(b"csr"),
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


@pytest.mark.parametrize("dtype", [">f4", "float16", ">i8"])
def test_value_types_that_scipy_never_writes_are_read(rules, tmp_path, dtype):
    changes = {"data": np.array([1, 2, 3], dtype), "format": np.array("csr"), "indptr": np.array([0, 1, 1, 3], ">i4")}
    found = read(save(tmp_path, arrays(**changes)), rules)
    assert [as_dict(row) for row in found] == [{0: 1.0}, {}, {1: 2.0, 2: 3.0}]


def save(folder, values, ids=("a", "b", "c")):
    np.savez(folder / "m.npz", **values)
    (folder / "m.ids.jsonl").write_text("".join(json.dumps({"id": doc_id}) + "\n" for doc_id in ids))
    return folder / "m.npz"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"indptr": None}, "has no indptr"),
        ({"format": np.array(b"csc")}, "'csc' matrix"),
        ({"data": np.array([1.0, 2.0])}, "do not fit together"),
        ({"indptr": np.array([0, 3])}, "do not fit together"),
        ({"data": np.array(["a", "b", "c"])}, "give a CSR matrix of numbers"),
        ({"indices": np.array([0.5, 1, 2])}, "give a CSR matrix of numbers"),
        ({"format": np.array("c" * 99)}, "give a CSR matrix of numbers"),
        ({"data": np.ones((3, 1))}, "give a CSR matrix of numbers"),
        ({"data": np.ones(3, [("x", "f4")])}, "give a CSR matrix of numbers"),
        ({"shape": np.array([3])}, "shape has 1 numbers"),
    ],
)
def test_archive_without_csr_matrix_is_rejected(rules, tmp_path, changes, words):
    with pytest.raises(SourceError, match=words):
        read(save(tmp_path, arrays(**changes)), rules)


def test_pickle_is_never_loaded(rules, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was opened",))

    data = np.array([Bomb(), Bomb(), Bomb()], dtype=object)
    with pytest.raises(SourceError, match="give a CSR matrix of numbers"):
        read(save(tmp_path, arrays(data=data)), rules)


def test_matrix_of_another_vocabulary_is_rejected(rules, tmp_path):
    with pytest.raises(LineageError, match="99 columns"):
        read(save(tmp_path, arrays(shape=np.array([3, 99]))), rules)


@pytest.mark.parametrize(("ids", "words"), [(("a", "b"), "2 ids"), (("a", "b", "c", "d"), "more ids")])
def test_number_of_ids_must_equal_number_of_rows(rules, tmp_path, ids, words):
    with pytest.raises(SourceError, match=words):
        read(save(tmp_path, arrays(), ids), rules)


@pytest.mark.parametrize("indptr", [[0, 2, 1, 3], [1, 1, 1, 3], [0, 1, 1, 2], [0, 1, 1, 9], [0, -5, 1, 3]])
def test_contradicting_row_bounds_end_the_file(rules, tmp_path, indptr):
    found = read(save(tmp_path, arrays(indptr=np.array(indptr))), rules)
    assert found[-1].reason == "damaged_file"
    assert "indptr" in found[-1].detail


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"indices": np.array([0, 1, V])}, "unknown_term"),
        ({"indices": np.array([0, -1, 2])}, "unknown_term"),
        ({"indices": np.array([0, 2, 2])}, "repeated_term"),
        ({"data": np.array([1.0, np.nan, 3.0])}, "bad_weight"),
        ({"data": np.array([1.0, -2.0, 3.0])}, "bad_weight"),
    ],
)
def test_bad_row_does_not_affect_other_rows(rules, tmp_path, changes, reason):
    first, empty, bad = read(save(tmp_path, arrays(**changes)), rules)
    assert (as_dict(first), as_dict(empty)) == ({0: 1.0}, {})
    assert isinstance(bad, BadRow)
    assert (bad.reason, bad.doc_id) == (reason, "c")


@pytest.mark.parametrize("cut", [10, 0.5, 0.9])
def test_truncated_archive_is_damage_and_does_not_crash(rules, tmp_path, cut):
    path = save(tmp_path, arrays())
    data = path.read_bytes()
    path.write_bytes(data[: cut if cut > 1 else int(len(data) * cut)])
    (bad,) = read(path, rules)
    assert bad.reason == "damaged_file"


def _with(data: bytes, at: int, value: bytes) -> bytes:
    at %= len(data)
    return data[:at] + value + data[at + len(value) :]


def _central(data: bytes) -> int:
    """Return the place of the entry of the first array in the central directory."""
    return data.index(b"PK\x01\x02")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: _with(data, _central(data) + 6, b"\x7f"),  # version of zip that is needed: NotImplementedError
        lambda data: _with(_with(data, _central(data) + 8, b"\x00\x08"), _central(data) + 46, b"\xff"),  # name in UTF-8
        lambda data: _with(data, _central(data) + 42, b"\xff\xff\xff\x7f"),  # place of the array
    ],
)
def test_damaged_directory_of_an_archive_is_one_bad_row(rules, tmp_path, damage):
    path = save(tmp_path, arrays())
    path.write_bytes(damage(path.read_bytes()))
    (bad,) = read(path, rules)
    assert bad.reason == "damaged_file"


def test_impossible_seek_in_an_archive_is_damage(rules, tmp_path, monkeypatch):
    path = save(tmp_path, arrays())

    def seek(*_):
        raise ValueError("negative seek value")  # as the readers of object stores do

    for place in ("__init__", "open"):
        with monkeypatch.context() as patch:
            patch.setattr(zipfile.ZipFile, place, seek)
            (bad,) = read(path, rules)
        assert (bad.reason, "negative seek value" in bad.detail) == ("damaged_file", True)


def test_fewer_values_than_in_the_header_are_damage(rules, tmp_path):
    path = save(tmp_path, arrays())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["data.npy"] = members["data.npy"][:-8]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    found = read(path, rules)
    assert found[-1].reason == "damaged_file"
    assert "data ends early" in found[-1].detail


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from([b"csr", "csr"]),
    name=st.sampled_from(["data", "indices", "indptr", "shape", "format"]),
    at=st.integers(0, 200),
    junk=st.binary(min_size=1, max_size=8)
    | st.sampled_from([b"(" * 90, b"'", b"9999999999", b"O", b"-1", b"S99999999"]),
)
def test_mutated_archive_is_read_or_rejected_without_crash(rules, tmp_path_factory, name, at, junk, kind):
    path = save(tmp_path_factory.mktemp("npz"), arrays(format=np.array(kind)))
    with zipfile.ZipFile(path) as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    data = members[f"{name}.npy"]
    members[f"{name}.npy"] = data[:at] + junk + data[at + len(junk) :]
    with zipfile.ZipFile(path, "w") as archive:  # with correct checksums: only validation can reject the content
        for one, content in members.items():
            archive.writestr(one, content)
    try:
        found = read(path, rules)
    except LsrError:
        return
    assert found


def test_all_forms_of_good_and_bad_ids():
    found = list(read_ids(io.BytesIO('{"id": "a"}\n"ü"\n{}\n[\n7\n"\\n"\n'.encode()), json_lines=True))
    assert [getattr(one, "reason", one) for one in found] == [
        "a", "ü", "missing_id", "broken_json", "wrong_type", "control_characters",
    ]  # fmt: skip
    plain = list(read_ids(io.BytesIO(b"a\r\n \n\n\xff"), json_lines=False))
    assert [getattr(one, "reason", one) for one in plain] == ["a", " ", "missing_id", "invalid_utf8"]


def test_existing_output_is_kept_and_no_draft_remains(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"mine")
    with pytest.raises(StorageError, match="exists already"):
        write_csr(tmp_path / "a.npz", tmp_path / "a.ids.jsonl", blocks_of([{1: 1.0}], 1), V, "float32")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_equal_matrices_make_equal_files(tmp_path):
    for name in ("a", "b"):
        write_csr(tmp_path / f"{name}.npz", tmp_path / f"{name}.ids.jsonl", blocks_of([{1: 1.0}, {}], 1), V, "int32")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
