import datetime as dt
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lsr_prod.encoding.tables import open_table
from lsr_prod.errors import ArtifactError, ConfigError, LineageError
from lsr_prod.storage import Store
from lsr_prod_contrib.vectors import Rules, Vocabulary, find_vector_files, read_batches, read_vectors
from lsr_prod_contrib.vectors.table_export import TableVectors, _by_partition, export_csr, export_jsonl, ids_path
from tests.contrib.vectors.conftest import TERMS
from tests.indexing.corpus import STEP, Doc, make_bundle, make_table

CORPUS = {
    f"née {i}": Doc({(i + 5 * j) % len(TERMS): 255 - 9 * j for j in range(i % 9)}, f"text 数据 {i}") for i in range(50)
}


@pytest.fixture
def table(bundle, tmp_path):
    make_table(tmp_path / "table", CORPUS, bundle)
    return open_table(Store(str(tmp_path / "table")))


def found(path, vector_format, rules):
    (batch,) = read_batches(find_vector_files([str(path)], vector_format), rules)
    rows = (batch.vectors.row(i) for i in range(len(batch.ids)))
    return {d: dict(zip(t.tolist(), w.tolist(), strict=True)) for d, (t, w) in zip(batch.ids, rows, strict=True)}


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.npz"])
@pytest.mark.parametrize("floats", [False, True])
def test_export_equals_the_table(table, vocabulary, rules, tmp_path, name, floats):
    vectors = TableVectors.open(table, vocabulary, floats=floats)
    export = export_csr if name.endswith("npz") else export_jsonl
    postings = sum(len(doc.terms) for doc in CORPUS.values())
    assert export(vectors, tmp_path / name) == (len(CORPUS), postings)
    unit = STEP if floats else 1
    wanted = {doc_id: {t: i * unit for t, i in doc.terms.items()} for doc_id, doc in CORPUS.items()}
    assert found(tmp_path / name, "npz" if name.endswith("npz") else "jsonl", rules) == wanted


def test_json_has_contents_and_integer_impacts(table, vocabulary, tmp_path):
    export_jsonl(TableVectors.open(table, vocabulary, contents="text"), tmp_path / "a.jsonl")
    lines = {line["id"]: line for line in map(json.loads, (tmp_path / "a.jsonl").read_text().split("\n")[:-1])}
    one = lines["née 8"]
    assert one["contents"] == "text 数据 8"
    assert all(type(weight) is int for weight in one["vector"].values())
    assert list(one["vector"].values()) == sorted(one["vector"].values(), reverse=True)


@pytest.mark.parametrize("impact", [0, 256])
def test_impacts_above_impact_bits_are_damage(vocabulary, bundle, tmp_path, impact):
    make_table(tmp_path / "table", {"a": Doc({1: impact})}, bundle)
    table = open_table(Store(str(tmp_path / "table")))
    with pytest.raises(ArtifactError, match="above 2\\*\\*impact_bits"):
        export_jsonl(TableVectors.open(table, vocabulary), tmp_path / "a.jsonl")


def test_floats_are_printed_short_and_parse_to_the_same_value(table, vocabulary, tmp_path):
    vectors = TableVectors.open(table, vocabulary, floats=True)
    vectors = replace(vectors, properties=replace(vectors.properties, impact_step=0.013))
    export_jsonl(vectors, tmp_path / "a.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().split("\n")[:-1]]
    for line in lines:
        impacts = sorted(CORPUS[line["id"]].terms.values(), reverse=True)
        weights = list(line["vector"].values())
        assert all(len(str(weight)) <= 10 for weight in weights)
        assert np.array_equal(np.float32(weights), np.float32(np.array(impacts) * 0.013))


def test_scipy_reads_the_exported_matrix(table, vocabulary, tmp_path):
    sparse = pytest.importorskip("scipy.sparse")
    export_csr(TableVectors.open(table, vocabulary), tmp_path / "a.npz")
    matrix = sparse.load_npz(tmp_path / "a.npz")
    assert (matrix.shape, matrix.dtype) == ((len(CORPUS), len(TERMS)), np.int32)
    ids = [json.loads(line) for line in ids_path(tmp_path / "a.npz").read_text().splitlines()]
    dense = matrix.toarray()
    for i, doc_id in enumerate(ids):
        assert {int(t): int(dense[i, t]) for t in np.flatnonzero(dense[i])} == dict(CORPUS[doc_id].terms)


def test_other_vocabulary_and_missing_field_are_rejected(table, vocabulary, tmp_path):
    make_bundle(tmp_path / "other", ["x", "y"])
    with pytest.raises(LineageError, match="another vocabulary"):
        TableVectors.open(table, Vocabulary.load(tmp_path / "other"))
    with pytest.raises(ConfigError, match="title, text"):
        TableVectors.open(table, vocabulary, contents="body")


def test_damaged_part_leaves_no_output(table, vocabulary, tmp_path):
    path = tmp_path / "table" / table.files()[1].path
    path.write_bytes(path.read_bytes()[:-10])
    for export, name in ((export_jsonl, "a.jsonl"), (export_csr, "a.npz")):
        with pytest.raises(ArtifactError, match="cannot be read"):
            export(TableVectors.open(table, vocabulary), tmp_path / name)
    assert [one.name for one in tmp_path.iterdir()] == ["table"]


def test_terms_outside_the_vocabulary_are_damage(vocabulary, bundle, tmp_path):
    make_table(tmp_path / "table", {"a": Doc({len(TERMS): 1})}, bundle)
    table = open_table(Store(str(tmp_path / "table")))
    with pytest.raises(ArtifactError, match="outside its vocabulary"):
        export_jsonl(TableVectors.open(table, vocabulary), tmp_path / "a.jsonl")


def test_export_of_an_empty_table_is_read_as_empty(vocabulary, bundle, tmp_path):
    make_table(tmp_path / "table", {}, bundle)
    table = open_table(Store(str(tmp_path / "table")))
    assert export_csr(TableVectors.open(table, vocabulary), tmp_path / "a.npz") == (0, 0)
    (file,) = find_vector_files([str(tmp_path / "a.npz")], "npz")
    assert list(read_vectors(file, Rules(vocabulary))) == []


def test_folders_of_typed_columns_are_named_by_their_text():
    days = [dt.date(2024, 1, 2), None, dt.date(2024, 1, 2)]
    rows = pa.table({"doc_id": ["a", "b", "c"], "year": [2001, 2001, None], "ok": [True, False, True], "day": days})
    found = {folder: group["doc_id"].to_pylist() for folder, group in _by_partition(rows, ["year", "ok", "day"])}
    assert found == {
        "year=2001/ok=true/day=2024-01-02/": ["a"],
        "year=2001/ok=false/day=__HIVE_DEFAULT_PARTITION__/": ["b"],
        "year=__HIVE_DEFAULT_PARTITION__/ok=true/day=2024-01-02/": ["c"],
    }
