import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.errors import ConfigError
from lsr_prod.training.data.schemas import check_schemas
from lsr_prod.training.data.training_rows import pin_files


def check(path: Path, kind: str = "pairs", **settings: Any) -> None:
    data = TrainingDataSettings(paths=[str(path)], kind=kind, **settings)
    check_schemas(pin_files(data, {}), data, {})


def parquet(path: Path, **columns: Any) -> None:
    pq.write_table(pa.table(columns), path)


def jsonl(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_schema_of_every_file_is_checked(tmp_path: Path):
    for number in range(40):
        parquet(tmp_path / f"{number:02d}.parquet", query=["q"], positive=["p"])
    check(tmp_path)
    parquet(tmp_path / "37.parquet", query=["q"], pos=["p"])
    with pytest.raises(
        ConfigError,
        match=r"data.columns: \S*37.parquet has no column positive, .*; name one of its columns: pos, query",
    ):
        check(tmp_path)
    parquet(tmp_path / "37.parquet", query=["q"], positive=[7])
    with pytest.raises(ConfigError, match=r"37.parquet has int64 in column positive, which has to be text"):
        check(tmp_path)
    (tmp_path / "37.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"37.parquet is not a readable parquet file"):
        check(tmp_path)


@pytest.mark.parametrize(
    ("kind", "columns", "problem"),
    [
        ("negatives", {"negatives": ["n"]}, "has string in column negatives, which has to be a list of texts"),
        ("negatives", {"negatives": [[1]]}, "which has to be a list of texts"),
        ("negatives", {"negatives": [[["n"]]]}, "which has to be a list of texts"),
        ("scores", {"documents": [["p"]], "scores": [["1"]]}, "scores, which has to be a list of numbers"),
        ("scores", {"documents": [["p"]], "scores": [1.0]}, "scores, which has to be a list of numbers"),
        ("scores", {"documents": [[None]], "scores": [[1.0]]}, "documents, which has to be a list of texts"),
        ("pairs", {"positive": [None]}, "has null in column positive"),
        ("pairs", {"positive": [["p"]]}, "which has to be text"),
    ],
)
def test_column_of_a_wrong_type_is_rejected(tmp_path: Path, kind: str, columns: dict[str, Any], problem: str):
    parquet(tmp_path / "a.parquet", **({"query": ["q"], "positive": ["p"]} | columns))
    with pytest.raises(ConfigError, match=problem):
        check(tmp_path / "a.parquet", kind)


def test_delta_table_with_old_files_without_a_column_is_rejected(tmp_path: Path):
    write_deltalake(tmp_path / "t", pa.table({"query": ["q"], "positive": ["p"]}))
    check(tmp_path / "t")
    write_deltalake(
        tmp_path / "t",
        pa.table({"query": ["q"], "positive": ["p"], "negative": ["n"]}),
        mode="append",
        schema_mode="merge",
    )
    with pytest.raises(ConfigError, match="has no column negative"):
        check(tmp_path / "t", "triples")


def test_json_file_whose_first_rows_lack_a_column_is_rejected(tmp_path: Path):
    jsonl(tmp_path / "a.jsonl", *[{"query": "q", "pos": "p"}] * 5)
    with pytest.raises(ConfigError, match=r"a.jsonl has no column positive, .*one of its columns: pos, query"):
        check(tmp_path / "a.jsonl")
    check(tmp_path / "a.jsonl", columns={"positive": "pos"})
    with gzip.open(tmp_path / "b.jsonl.gz", "wb") as file:
        file.write(b'{"query": "q"}\n' * 500)
    with pytest.raises(ConfigError, match=r"b.jsonl.gz has no column positive"):
        check(tmp_path / "b.jsonl.gz")
    jsonl(tmp_path / "a.jsonl", {"query": "q"}, {"query": 3}, {"query": "q", "positive": "p"})
    check(tmp_path / "a.jsonl")  # single rows are validated when they are read


def test_json_file_whose_first_rows_have_another_type_is_rejected(tmp_path: Path):
    jsonl(tmp_path / "a.jsonl", *[{"query": "q", "positive": ["p"]}] * 5)
    with pytest.raises(ConfigError, match=r'a.jsonl has \["p"\] in column positive, which has to be text'):
        check(tmp_path / "a.jsonl")
    jsonl(tmp_path / "a.jsonl", *[{"query": "q", "positive": ["p"]}] * 5, {"query": "q", "positive": None})
    check(tmp_path / "a.jsonl")


def test_files_without_an_object_pass_and_other_formats_are_rejected(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(b"nothing\nhere\n")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    check(tmp_path)
    (tmp_path / "b.csv").write_text("query,positive\nq,p\n")
    with pytest.raises(ConfigError, match=r"b.csv is csv; give Parquet, JSONL or a Delta table"):
        check(tmp_path)
