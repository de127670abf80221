"""A dataset of ir_datasets becomes files that our readers read as ir_datasets does, or a sentence says why not."""

from pathlib import Path
from typing import Any, NamedTuple

import ir_datasets
import pytest
from ir_datasets.datasets.base import Dataset
from ir_datasets.formats import BaseDocs, BaseQrels, GenericDoc, GenericQrel, TrecQrels, TsvDocs
from ir_datasets.util import LocalDownload

from lsr_prod.config.training import ValidationSettings
from lsr_prod.errors import ConfigError, LsrError, SourceError
from lsr_prod.evaluation.validation import read_collection
from lsr_prod.integrations.ir_datasets import write_dataset
from tests.lazy import LazyModule

harnesses = LazyModule("benchmarks.evaluation.harnesses")


class Rows(BaseDocs):
    """Documents from memory."""

    def __init__(self, *rows: Any) -> None:
        self.rows = rows

    def docs_iter(self) -> Any:
        yield from self.rows


class Judgments(BaseQrels):
    """Judgments from memory."""

    def __init__(self, *rows: Any) -> None:
        self.rows = rows

    def qrels_iter(self) -> Any:
        yield from self.rows


class Page(NamedTuple):
    doc_id: str
    body: bytes
    url: str | None

    def default_text(self) -> str:
        return self.body.decode()


@pytest.mark.long
def test_dataset_is_read_as_it_was_registered(shared_data: Path, tmp_path: Path) -> None:
    name = harnesses.register(shared_data / "scifact", tmp_path / "registered" / "part", 80)
    written = write_dataset(name, tmp_path / "inputs")
    files = {key: str(tmp_path / "inputs" / f"{key}.jsonl") for key in ("corpus", "queries", "qrels")}
    read = read_collection(ValidationSettings(**files, documents=None))
    dataset = ir_datasets.load(name)
    assert written == {"corpus.jsonl": 80, "queries.jsonl": len(read.queries), "qrels.jsonl": len(read.qrels)}
    assert read.documents == {row.doc_id: row.default_text() for row in dataset.docs_iter()}
    assert read.queries == {row.query_id: row.text for row in dataset.queries_iter()}
    judged = {(row.query_id, row.doc_id, row.relevance) for row in dataset.qrels_iter()}
    assert {(row.query_id, row.doc_id, row.relevance) for row in read.qrels} == judged


@pytest.mark.long
def test_only_what_a_dataset_has_is_written(tmp_path: Path) -> None:
    (tmp_path / "docs.tsv").write_text("1\ta \u2028 lock\n2\t\n")
    (tmp_path / "qrels").write_text("q 0 1 2\n")
    documents = Dataset(TsvDocs(LocalDownload(tmp_path / "docs.tsv")))
    assert write_dataset(documents, tmp_path / "documents") == {"corpus.jsonl": 2}
    assert [path.name for path in (tmp_path / "documents").iterdir()] == ["corpus.jsonl"]
    assert write_dataset(Dataset(TrecQrels(LocalDownload(tmp_path / "qrels"), {})), tmp_path / "q") == {
        "qrels.jsonl": 1
    }
    assert harnesses.read_rows(tmp_path / "q" / "qrels.jsonl") == [{"query_id": "q", "doc_id": "1", "relevance": 2}]


def test_fields_are_written_in_an_object(tmp_path: Path) -> None:
    dataset = Dataset(Rows(Page("1", b"text", None), Page("2", b"more", "http://x")))
    write_dataset(dataset, tmp_path / "made", fields=["url"])
    rows = harnesses.read_rows(tmp_path / "made" / "corpus.jsonl")
    assert rows == [
        {"_id": "1", "text": "text", "meta": {"url": None}},
        {"_id": "2", "text": "more", "meta": {"url": "http://x"}},
    ]


@pytest.mark.parametrize(
    ("dataset", "fields", "error", "problem"),
    [
        ("no/such/dataset", [], ConfigError, "'no/such/dataset' is unknown"),
        (Dataset(), [], ConfigError, "neither documents nor queries"),
        (Dataset(Rows(Page("1", b"", ""))), ["title"], ConfigError, "no title, only doc_id, body, url"),
        (Dataset(Rows(Page("1", b"", ""))), ["body"], ConfigError, "a value of corpus.jsonl is no JSON"),
        (Dataset(Rows(Page("1", b"\xff", ""))), [], SourceError, "cannot read the rows of corpus.jsonl"),
        (Dataset(Rows(GenericQrel("q", "1", 1))), [], ConfigError, "no default_text"),
        (Dataset(Judgments(GenericDoc("1", "a"))), [], ConfigError, "no query_id"),
        (Dataset(TsvDocs(LocalDownload("/nowhere/docs.tsv", mkdir=False))), [], SourceError, "corpus.jsonl"),
    ],
)
def test_dataset_that_cannot_be_written_leaves_nothing(
    dataset: Any, fields: list[str], error: type[LsrError], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=problem):
        write_dataset(dataset, tmp_path / "made", fields=fields)
    assert list(tmp_path.iterdir()) == []


def test_folder_with_content_is_kept(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "mine").touch()
    with pytest.raises(ConfigError, match="has content"):
        write_dataset(Dataset(Rows(Page("1", b"text", ""))), tmp_path / "made")
    assert [path.name for path in tmp_path.rglob("*")] == ["made", "mine"]
