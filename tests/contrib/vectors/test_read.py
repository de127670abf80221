import gzip
import json
import tracemalloc

import boto3
import pytest

from lsr_prod.errors import ConfigError, SourceError
from lsr_prod_contrib.vectors import find_vector_files, read_batches, read_vectors, write_jsonl
from tests.contrib.vectors.conftest import TERMS


def write(folder, name: str, ids: str) -> None:
    write_jsonl(folder / name, [(doc_id, {"lock": 1, "Ω": 0.5}, None) for doc_id in ids])


def test_folder_yields_only_its_vector_files_in_order(rules, tmp_path):
    for name, ids in {
        "b.jsonl": "cd",
        "a.json": "ab",
        "c/d.jsonl.gz": "ef",
        ".hidden.jsonl": "x",
        "_m.jsonl": "y",
    }.items():
        write(tmp_path, name, ids)
    (tmp_path / "README.md").write_text("no vectors")
    files = find_vector_files([str(tmp_path), str(tmp_path / "b.jsonl")], "jsonl")
    ids = [row.doc_id for file in files for _, row in read_vectors(file, rules)]
    assert ids == list("abcdef")


def test_files_with_another_ending_are_skipped_with_one_warning(tmp_path, caplog):
    for name in ("a.jsonl", "b.jsonl.zst", "c.txt", "m.ids.txt"):
        write(tmp_path, name, "ab")
    for path in (str(tmp_path), str(tmp_path / "*")):
        caplog.clear()
        assert len(find_vector_files([path], "jsonl")) == 1
        (record,) = caplog.records
        assert record.fields == {"path": path, "files": 2, "example": str(tmp_path / "b.jsonl.zst")}


def test_id_file_of_a_matrix_is_not_read_as_vectors(rules, tmp_path):
    write(tmp_path, "a.jsonl", "ab")
    (tmp_path / "m.ids.jsonl").write_text('"a"\n')
    (file,) = find_vector_files([str(tmp_path)], "jsonl")
    assert file.location == str(tmp_path / "a.jsonl")


def test_named_file_is_read_with_any_ending(rules, tmp_path):
    write(tmp_path, "vectors.part0", "ab")
    (file,) = find_vector_files([str(tmp_path / "vectors.part0")], "jsonl")
    assert [row.doc_id for _, row in read_vectors(file, rules)] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "words"), [("absent", "nothing at"), ("empty", "nothing at"), ("other", "no file of")]
)
def test_path_without_vectors_is_a_config_error(tmp_path, name, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("x")
    with pytest.raises(ConfigError, match=words):
        find_vector_files([str(tmp_path / name)], "jsonl")


def test_matrix_without_ids_is_a_config_error(tmp_path):
    (tmp_path / "m.npz").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"m\.ids\.jsonl or m\.ids\.txt"):
        find_vector_files([str(tmp_path)], "npz")


@pytest.mark.long
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-20], lambda data: data[:-900] + bytes(900), lambda data: b"no gzip" + data]
)
def test_damaged_gz_yields_complete_rows_and_one_bad_row(rules, tmp_path, damage):
    lines = b"".join(json.dumps({"id": str(i), "vector": {"lock": i + 1}}).encode() + b"\n" for i in range(50_000))
    (tmp_path / "a.jsonl.gz").write_bytes(damage(gzip.compress(lines)))
    (file,) = find_vector_files([str(tmp_path)], "jsonl")
    found = [row for _, row in read_vectors(file, rules)]
    assert [row.reason for row in found if hasattr(row, "reason")][-1] == "damaged_file"
    good = [row.doc_id for row in found if not hasattr(row, "reason")]
    assert good == [str(i) for i in range(len(good))]


def test_deleted_file_raises_source_error(rules, tmp_path):
    write(tmp_path, "a.jsonl", "a")
    (file,) = find_vector_files([str(tmp_path)], "jsonl")
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        list(read_vectors(file, rules))


def test_batches_contain_good_and_bad_rows(rules, tmp_path):
    write(tmp_path, "a.jsonl", "abc")
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b"{}\n")
    write(tmp_path, "b.jsonl", "de")
    batches = list(read_batches(find_vector_files([str(tmp_path)], "jsonl"), rules, rows=2))
    assert [batch.ids for batch in batches] == [("a", "b"), ("c",), ("d", "e")]
    assert [len(batch.vectors) for batch in batches] == [2, 1, 2]
    ((place, bad),) = batches[1].bad
    assert (place.endswith("a.jsonl:138"), bad.reason) == (True, "missing_id"), place
    terms, weights = batches[2].vectors.row(1)
    assert {TERMS[t]: w for t, w in zip(terms, weights.tolist(), strict=True)} == {"lock": 1.0, "Ω": 0.5}


@pytest.mark.long
def test_memory_is_bounded_by_a_batch(rules, tmp_path):
    write_jsonl(tmp_path / "a.jsonl.gz", ((str(i), dict.fromkeys(TERMS, i + 1), "x" * 400) for i in range(20_000)))
    files = find_vector_files([str(tmp_path)], "jsonl")
    tracemalloc.start()
    try:
        assert sum(len(batch.ids) for batch in read_batches(files, rules, rows=256)) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 8_000_000  # the plain text has 13 MB
    finally:
        tracemalloc.stop()


def test_object_store_is_read_like_a_folder(rules, tmp_path, s3_options):
    write(tmp_path, "a.jsonl.gz", "ab")
    client = boto3.client("s3", endpoint_url=s3_options["aws_endpoint"], region_name="us-east-1")
    client.put_object(Bucket="lsr", Key="interchange/a.jsonl.gz", Body=(tmp_path / "a.jsonl.gz").read_bytes())
    client.close()
    files = find_vector_files(["s3://lsr/interchange"], "jsonl", s3_options)
    assert [row.doc_id for file in files for _, row in read_vectors(file, rules)] == ["a", "b"]
