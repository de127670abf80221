"""``lsr-prod encode --dry-run`` shows what the model will see, and which settings solve what is wrong."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.jobs.encode import encode


def dry_run(
    folder: Path, bundle: Path, capsys: pytest.CaptureFixture[str], **source: Any
) -> tuple[dict[str, Any], str]:
    """Return ``source`` of the result, and what was printed before it."""
    config = folder.with_suffix(".yaml")
    sections = {
        "source": {"paths": [str(folder)], **source},
        "encode": {"bundle": str(bundle), "table": str(folder.with_name("table")), "actors": 1, "impact_step": 0.02},
    }
    config.write_text(json.dumps(sections))
    assert encode.run(["--config", str(config), "--dry-run"]) == 0, capsys.readouterr().err
    printed, _, result = capsys.readouterr().out.rpartition("RESULT ")
    assert not folder.with_name("table").exists()
    found: dict[str, Any] = json.loads(result)["source"]
    return found, printed


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    return tmp_path / "corpus"


def test_columns_documents_and_problems_of_json(corpus: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]):
    rows = [{"_id": f"d{i}", "title": "a \x1b[31mtitle", "text": f"{'long ' * 90}{i}", "year": i} for i in range(30)]
    rows += [{"_id": "d0", "text": "x"}, {"text": "x"}, {"_id": "e", "text": 7}, {"_id": "f", "text": " "}]
    (corpus / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{no json\n")
    (corpus / "b.csv").write_text('_id,text\ng,x\nh,"damaged\n')
    stored = ["year", "text"]
    found, printed = dry_run(corpus, tiny_bundle, capsys, stored_fields=stored, on_damage="skip")
    assert (found["formats"], found["rows_looked_at"]) == ({"jsonl": 1, "csv": 1}, 37)
    assert found["first_files"] == [str(corpus / "a.jsonl"), str(corpus / "b.csv")]
    columns = {column["column"]: column for column in found["columns"]}
    assert [*columns] == ["_id", "title", "text", "year"]
    assert columns["text"]["type"] == "string, int64, text"
    assert [columns[name]["used_as"] for name in columns] == ["id", "text", "text, stored", "stored"]
    assert (columns["year"]["stored_type"], columns["year"]["example"]) == ("int64", "0")
    first = found["first_documents"]
    assert [one["id"] for one in first] == ["d0", "d1", "d2"]
    assert first[0]["text"] == ("a \x1b[31mtitle " + "long " * 90)[:300] + "…"
    assert {(one["reason"], one["column"], one["rows"]): one["setting"] for one in found["problems"]} == {
        ("duplicate_id", "_id", 1): "source.id_field (now _id) or encode.on_duplicate",
        ("missing_id", "_id", 1): "source.id_field (now _id)",
        ("wrong_type", "text", 1): "source.columns, source.types or source.stored_fields",
        ("empty_text", "title, text", 1): "source.text_fields (now title, text)",
        ("broken_json", "", 1): "source.format (json: values of several lines)",
        ("damaged_row", "", 1): "source.csv.escape, source.csv.quotes or source.on_damage",
    }
    assert "\x1b" not in printed
    assert "\\x1b[31mtitle" in printed
    assert "problems of the first 37 rows" in printed


def test_setting_with_the_one_column_that_fits(corpus: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]):
    rows = [{"docno": f"d{i}", "url_hash": "x", "body": "some text", "head": "t"} for i in range(50)]
    rows[7]["docno"] = "d8"
    (corpus / "a.json").write_text(json.dumps(rows, indent=1))
    found, printed = dry_run(corpus, tiny_bundle, capsys, stored_fields=[])
    assert found["first_documents"] == []
    assert [(one["reason"], one["rows"], one["setting"]) for one in found["problems"]] == [
        ("missing_id", 50, 'source.id_field: "docno"')
    ]
    assert 'source.id_field: "docno"' in printed
    found, _ = dry_run(corpus, tiny_bundle, capsys, id_field="docno", stored_fields=[])
    assert [one["setting"] for one in found["problems"] if one["reason"] == "empty_text"] == [
        'source.text_fields: ["body"]'
    ]
    found, _ = dry_run(corpus, tiny_bundle, capsys, id_field="docno", text_fields=["body"], stored_fields=["head"])
    assert ([one["reason"] for one in found["problems"]], len(found["first_documents"])) == (["duplicate_id"], 3)


def test_only_the_first_thousand_rows_of_a_typed_file_are_read(
    corpus: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]
):
    count = 3000
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "meta": [{"title": f"title {i}"} for i in range(count)],
            "vector": [[0.5, 1.5]] * count,
            "tags": [["a", None, "b"]] * count,
            "price": pa.array([None, *range(1, count)], pa.float32()),
        }
    )
    pq.write_table(table, corpus / "a.parquet")
    found, _ = dry_run(
        corpus,
        tiny_bundle,
        capsys,
        id_field="id",
        text_fields=["meta.title"],
        stored_fields=["price", "meta.title", "tags"],
    )
    assert found["rows_looked_at"] == 1000
    columns = {
        column["column"]: (column["type"], column["used_as"], column["stored_type"]) for column in found["columns"]
    }
    assert columns == {
        "id": ("int64", "id", ""),
        "meta": ("struct<title: string>", "", ""),
        "vector": ("list<element: double>", "", ""),
        "tags": ("list<element: string>", "stored", "strings"),
        "price": ("float", "stored", "float64"),
        "meta.title": ("text", "text, stored", "string"),
    }
    assert found["first_documents"][0] == {"id": "0", "text": "title 0"}
    assert found["problems"] == []


def test_source_without_rows(corpus: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]):
    (corpus / "a.jsonl").touch()
    found, _ = dry_run(corpus, tiny_bundle, capsys, stored_fields=[])
    assert (found["rows_looked_at"], found["columns"], found["problems"]) == (0, [], [])


def test_columns_that_no_row_has_are_problems(corpus: Path, tiny_bundle: Path, capsys: pytest.CaptureFixture[str]):
    (corpus / "a.jsonl").write_text('{"_id": "a", "title": "x", "body": "x", "meta": {"year": 1}}\n')
    found, printed = dry_run(
        corpus, tiny_bundle, capsys, text_fields=["tittle", "body"], stored_fields=["body", "prise", "meta.year"]
    )
    assert [(one["reason"], one["column"], one["rows"]) for one in found["problems"]] == [
        ("absent_column", "tittle", 1),
        ("absent_column", "prise", 1),
    ]
    assert "source.text_fields, source.stored_fields or source.columns" in printed
