"""Small files as people have them give what their table of expected outcomes says."""

import datetime as dt
import decimal
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.field_types import field_types
from lsr_prod.corpus.filelist import cut_files
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.read import Reader
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.collection import read_qrels, read_queries


@pytest.fixture(scope="module")
def folder(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, script = tmp_path_factory.mktemp("field"), shared_data.parent / "field" / "make.py"
    if not script.exists() and not os.environ.get("CI"):
        pytest.skip(f"there is no {script}")
    subprocess.run([sys.executable, str(script), str(made)], check=True)
    return made


def read(path: Path, **settings: Any) -> pa.Table:
    """Return the rows that the encode job reads."""
    source = SourceSettings.model_validate({"paths": [str(path)], "id_field": "id", "text_fields": ["text"]} | settings)
    files = list(resolve_source(source, {}))
    source = source.model_copy(update={"types": field_types(source, files, {}, None)})
    pieces = cut_files(enumerate(files), source, 1 << 30, {})
    return pa.concat_tables(table for piece in pieces for table in Reader(source, 1, {}).read(piece))


def test_typed_parquet_keeps_its_types(folder: Path) -> None:
    names = ["year", "price", "ok", "day", "when", "amount", "tags"]
    rows = read(folder / "typed.parquet", stored_fields=names)
    assert (rows.num_rows, rows["reason"].null_count) == (100, 100)
    kinds = [rows.schema.field(f"stored.{name}").type for name in names]
    moment, texts = pa.timestamp("us", "UTC"), pa.list_(pa.field("element", pa.large_string()))
    assert kinds == [pa.int64(), pa.float64(), pa.bool_(), pa.date32(), moment, pa.decimal128(38, 2), texts]
    row = {name: rows[f"stored.{name}"][5].as_py() for name in names}
    assert (row["amount"], row["tags"]) == (decimal.Decimal("1.25"), ["a", "b"])
    assert isinstance(row["day"], dt.date)


def test_typed_json_has_integer_ids_and_types(folder: Path) -> None:
    rows = read(folder / "typed.jsonl", stored_fields=["year", "price", "ok", "tags"])
    assert rows["doc_id"].to_pylist() == [str(i) for i in range(100)]
    assert rows["reason"].null_count == 100
    fifth = [rows[f"stored.{name}"][5].as_py() for name in ("year", "price", "ok", "tags")]
    assert fifth == [2005, 1.25, False, ["a"]]


def test_semicolons_are_named_and_an_array_is_read(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"source\.csv\.delimiter: .* set it to ';'"):
        read(folder / "semicolon.csv", stored_fields=["text"])
    assert read(folder / "semicolon.csv", stored_fields=["text"], csv={"delimiter": ";"})["reason"].null_count == 20
    assert read(folder / "array.json", id_field="_id", stored_fields=["text"])["reason"].null_count == 20


def test_judgments_and_queries_have_headers_and_float_grades(folder: Path) -> None:
    float_grades, headed = (list(read_qrels(str(folder / f"qrels_{name}.tsv"))) for name in ("float", "headed"))
    assert [(one.query_id, one.doc_id, one.relevance) for one in float_grades] == [("q1", "d1", 1), ("q1", "d2", 0)]
    assert [(one.query_id, one.doc_id, one.relevance) for one in headed] == [("q1", "d1", 1)]
    assert list(read_queries(str(folder / "queries.csv"))) == [("q1", "how to read a file, line by line")]
