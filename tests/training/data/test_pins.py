"""The digest of the input of a stage depends on its content and nothing else."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.config.training import ValidationSettings
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store
from lsr_prod.training.data.schemas import pin_data, pin_validation

FIELDS = ("corpus", "queries", "qrels")
ROWS = pa.table({"query": ["a"], "positive": ["b"]})
MORE = pa.table({"query": ["c"], "positive": ["d"]})


def pin(*paths: str | Path, options: dict[str, str] | None = None, version: int | None = None) -> str:
    data = TrainingDataSettings(paths=[str(path) for path in paths], kind="pairs", version=version)
    return pin_data(data, options or {})


def test_digest_depends_on_content_and_order_of_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for folder in (tmp_path, tmp_path / "deep"):
        pq.write_table(ROWS, folder / "a.parquet")
        pq.write_table(MORE, folder / "b.parquet")
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    assert pin(a, b) == pin(tmp_path / "deep") == pin(tmp_path / "deep" / "*.parquet")
    assert len({pin(a, b), pin(b, a), pin(a), pin(b)}) == 4
    before = pin(a)
    pq.write_table(MORE, a)
    assert pin(a) != before


def test_delta_table_is_pinned_by_version(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), ROWS)
    first = pin(tmp_path / "t")
    write_deltalake(str(tmp_path / "t"), MORE, mode="append")
    assert pin(tmp_path / "t") != first == pin(tmp_path / "t", version=0)
    with pytest.raises(ConfigError, match=r"data\.paths"):
        pin(tmp_path / "t", version=9)


def test_objects_are_pinned_by_etags(tmp_path: Path, s3_options: dict[str, str]) -> None:
    store = Store(f"s3://lsr/{tmp_path.name}", s3_options)
    store.put_new("a.jsonl", b'{"query": "a", "positive": "b"}\n')
    first = pin(f"{store.uri}/a.jsonl", options=s3_options)
    store.delete("a.jsonl")
    store.put_new("a.jsonl", b'{"query": "a", "positive": "c"}\n')
    assert pin(f"{store.uri}/a.jsonl", options=s3_options) != first
    with pytest.raises(ConfigError, match=r"^data\.paths"):
        pin(f"{store.uri}/b.jsonl", options=s3_options)


def test_validation_collection_is_pinned_by_content(tmp_path: Path) -> None:
    def digest(names: str) -> str:
        return pin_validation(
            ValidationSettings(**{field: str(tmp_path / name) for field, name in zip(FIELDS, names, strict=True)})
        )

    for name in "abcd":
        (tmp_path / name).write_text(name.replace("d", "a"))
    assert digest("abc") == digest("dbc") != digest("acb")
    (tmp_path / "d").write_text("other")
    assert digest("abc") != digest("dbc")


@pytest.mark.parametrize(("name", "field"), [("t.csv", "paths"), ("nowhere.jsonl", "paths"), ("q.jsonl", "columns")])
def test_data_of_another_schema_is_rejected(tmp_path: Path, name: str, field: str) -> None:
    (tmp_path / "t.csv").write_text("query,positive\n")
    (tmp_path / "q.jsonl").write_text('{"query": "a", "pos": "b"}\n')
    with pytest.raises(ConfigError, match=rf"^data\.{field}"):
        pin(tmp_path / name)
