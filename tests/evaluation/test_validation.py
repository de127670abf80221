import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsr_prod.config import Deployment
from lsr_prod.config.training import ValidationSettings
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.evaluation import evaluate_index, validation
from lsr_prod.evaluation.validation import Validator, read_collection
from lsr_prod.inference import BundleEncoder
from lsr_prod.storage import Store
from lsr_prod.storage.formats.bundle_format import Kind
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.training.data.schemas import pin_validation
from tests.indexing.corpus import encode_corpus, make_index

DOCUMENTS = {
    "lock": ("Locks", "A lock is released by the thread that holds it."),
    "event": ("", "An event lets one thread signal others."),
    "dumps": (None, "Serialize a Python object to a string in JSON format."),
    "sqrt": ("Math", "Return the square root of a number."),
    "gzip": ("Files", "Open a compressed file for reading or writing."),
    "empty": ("", ""),
}
TEXTS = {name: " ".join(part for part in parts if part) for name, parts in DOCUMENTS.items()}
QUERIES = {"q1": "thread lock", "q2": "square root", "q3": "json string", "q4": " ", "unjudged": "file"}
QRELS = [("q1", "event", 0), ("q1", "lock", 2), ("q2", "sqrt", 1), ("q3", "gzip", 1), ("q4", "lock", 1)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"_id": name, "title": title, "text": text} for name, (title, text) in DOCUMENTS.items()]
    _write(tmp_path / "corpus.jsonl", rows)
    _write(tmp_path / "queries.jsonl", [{"_id": name, "text": text} for name, text in QUERIES.items()])
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in QRELS)]
    (tmp_path / "qrels.tsv").write_text("\n".join(lines))
    return tmp_path


def _write(path: Path, rows: Sequence[Any]) -> None:
    path.write_text("\n".join(map(json.dumps, rows)))


def settings(folder: Path, **more: Any) -> ValidationSettings:
    paths = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels.tsv"}
    files = {name: str(folder / file) for name, file in paths.items()}
    return ValidationSettings.model_validate({**files, **more})


def test_title_and_text_are_joined_and_judged_queries_kept(folder: Path) -> None:
    collection = read_collection(settings(folder))
    assert collection.documents == TEXTS
    assert collection.queries == {name: text for name, text in QUERIES.items() if name != "unjudged"}
    assert len(collection.qrels) == len(QRELS)


def test_relevant_documents_are_selected_first_then_judged_then_others(folder: Path) -> None:
    relevant = {"lock", "sqrt", "gzip"}
    assert set(read_collection(settings(folder, documents=3)).documents) == relevant
    assert set(read_collection(settings(folder, documents=4)).documents) == {*relevant, "event"}
    five = read_collection(settings(folder, documents=5)).documents
    assert {*relevant, "event"} < set(five)
    assert {name: TEXTS[name] for name in five} == five
    assert read_collection(settings(folder, documents=100)).documents == TEXTS


def test_selection_does_not_depend_on_order_of_file(folder: Path) -> None:
    whole = settings(folder, documents=5, max_queries=2)
    before = read_collection(whole)
    for name in ("corpus.jsonl", "queries.jsonl"):
        path = folder / name
        path.write_text("\n".join(reversed(path.read_text().splitlines())))
    after = read_collection(whole)
    assert list(after.documents.items()) == list(before.documents.items())
    assert list(after.queries.items()) == list(before.queries.items())
    assert len(after.queries) == 2


def test_fewer_documents_than_relevant_ones_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"validation.documents: 2 is less than the 3 relevant .*; give 3 or more"):
        read_collection(settings(folder, documents=2))


@pytest.mark.parametrize("name", ["corpus", "queries", "qrels"])
def test_path_that_is_not_a_file_is_refused(name: str, folder: Path) -> None:
    for path in (str(folder), str(folder / "absent")):
        with pytest.raises(ConfigError, match=rf"validation.{name}: there is no file at"):
            read_collection(settings(folder, **{name: path}))


def test_unknown_measure_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"validation.measures: .*nDCG@10"):
        read_collection(settings(folder, measures=["nDGC@10"]))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.jsonl", b'{"_id": "lock", "text": "a"}\n{"_id": "b"}', r"corpus.jsonl:2 is not a document"),
        ("corpus.jsonl", b"[1]", r"corpus.jsonl:1 is not a document"),
        ("corpus.jsonl", b'{"_id": "lock", "text": 3}', r"corpus.jsonl:1 is not a document"),
        ("corpus.jsonl", b'{"_id": "lock", "text": "\\ud800"}', r"corpus.jsonl:1 is not a document"),
        ("corpus.jsonl", b'{"_id": "lock", "text": "', r"corpus.jsonl:1 is not a document"),
        ("corpus.jsonl", b'{"_id": "a", "text": "x"}\n{"_id": "a", "text": "y"}', r":2 repeats the _id 'a'"),
        ("corpus.jsonl", b'{"_id": "lock", "text": "\xff"}', r"corpus.jsonl cannot be read as UTF-8"),
        ("corpus.jsonl", b"", r"no document of .* is relevant"),
        ("corpus.jsonl", b'{"_id": "event", "text": "judged 0"}', r"no document of .* is relevant"),
        ("queries.jsonl", b'{"_id": "q1", "text": "\xff"}', r"cannot be read"),
        ("queries.jsonl", b'{"_id": "q1"}', r"queries.jsonl:1 is not a query"),
        ("qrels.tsv", b"query-id\tcorpus-id\tscore\nq1\tlock\tx", r"qrels.tsv:2 is not a judgment"),
        ("qrels.tsv", b"q1 lock", r"qrels.tsv:1 is not a judgment"),
        ("qrels.tsv", b"", r"no query of .* is judged"),
    ],
)
def test_invalid_file_is_reported(name: str, content: bytes, message: str, folder: Path) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(SourceError, match=message):
        read_collection(settings(folder))


def test_queries_without_documents_in_corpus_are_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = (folder / "corpus.jsonl").read_text().splitlines()
    (folder / "corpus.jsonl").write_text("\n".join(line for line in lines if "gzip" not in line))
    assert len(read_collection(settings(folder)).queries) == 4
    (record,) = caplog.records
    assert vars(record)["fields"] == {"queries": 4, "without": 1}


def _words(texts: Sequence[str], kind: Kind) -> SparseBatch:
    """Encode texts as bags of words."""
    words = sorted({word for text in [*TEXTS.values(), *QUERIES.values()] for word in text.lower().split()})
    weights = np.array([[float(text.lower().split().count(word)) for word in words] for text in texts], np.float32)
    return SparseBatch.from_topk(np.broadcast_to(np.arange(len(words)), weights.shape), weights)


def test_validation_returns_measures_and_costs(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    validator = Validator(settings(folder, measures=["RR@1", "R@2"]), tmp_path / "scratch")
    found = validator(_words)
    assert found.measures == {"RR@1": 0.5, "R@2": 0.5}  # the judgment of q3 is wrong, q4 is empty
    assert (len(found.by_query["RR@1"]), len(validator.collection.documents)) == (4, 6)
    assert found.l0_query == pytest.approx(6 / 4)
    assert found.l0_document == pytest.approx(sum(len(set(text.lower().split())) for text in TEXTS.values()) / 6)
    postings = {"thread": 2, "lock": 1, "square": 1, "root": 1, "json": 1, "string": 1}
    assert found.flops == pytest.approx(sum(postings.values()) / (4 * 6))
    assert list((tmp_path / "scratch").iterdir()) == []
    assert validator(_words).measures == found.measures, "it can be called again"


def test_pruning_and_threshold_of_settings_are_applied(folder: Path) -> None:
    found = Validator(settings(folder, qk=1, dk=2), folder)(_words)
    assert found.l0_query == pytest.approx(3 / 4)
    assert found.l0_document == pytest.approx(10 / 6)
    strict = Validator(settings(folder, measures=["R@10"], overlap_threshold=1.0), folder)(_words)
    assert strict.measures["R@10"] == pytest.approx(2 / 4)  # "thread lock" finds one document with both terms


def test_texts_are_encoded_in_chunks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Validator(settings(folder, dk=4), folder)(_words)
    monkeypatch.setattr(validation, "_CHUNK", 4)
    calls: list[tuple[int, str]] = []

    def encode(texts: Sequence[str], kind: Kind) -> SparseBatch:
        calls.append((len(texts), kind))
        return _words(texts, kind)

    parts = Validator(settings(folder, dk=4), folder)(encode)
    assert calls == [(4, "document"), (2, "document"), (4, "query")]
    same = {"by_query": {}, "match_p50_ms": 0.0}  # arrays have no truth value, and times differ
    assert replace(parts, **same) == replace(whole, **same)
    assert {name: row.tolist() for name, row in parts.by_query.items()} == {
        name: row.tolist() for name, row in whole.by_query.items()
    }


def test_measures_equal_those_of_evaluated_index(folder: Path, tiny_bundle: Path) -> None:
    measures, levels = ["nDCG@10", "RR@10", "R@2"], {"qk": 8}
    encoder = BundleEncoder(tiny_bundle)
    make_index(folder / "index", encode_corpus(tiny_bundle, TEXTS), bundle=tiny_bundle)
    files = {"queries": str(folder / "queries.jsonl"), "qrels": str(folder / "qrels.tsv")}
    section = {**files, **levels, "index": str(folder / "index"), "measures": measures, "thresholds": [0.2]}
    report = evaluate_index(Deployment.model_validate({"evaluate": {**section, "bm25": False}})).result()

    def encode(texts: Sequence[str], kind: Kind) -> SparseBatch:
        return encoder.encode(list(texts), kind=kind, top_k=64)

    validator = Validator(settings(folder, measures=measures, **levels, overlap_threshold=0.2), folder)
    found = validator(encode)
    assert found.measures == pytest.approx(report["systems"][0]["measures"])
    for name in ("l0_query", "l0_document", "flops"):
        assert getattr(found, name) == pytest.approx(report[name])


def test_collection_by_uri_equals_local_files(folder: Path, s3_options: dict[str, str], tmp_path: Path) -> None:
    local, store = settings(folder), Store(f"s3://lsr/{tmp_path.name}", s3_options)
    places = {}
    for name in ("corpus", "queries", "qrels"):
        path = Path(getattr(local, name))
        store.put_new(path.name, path.read_bytes())
        places[name] = f"{store.uri}/{path.name}"
    assert read_collection(settings(folder, **places), s3_options) == read_collection(local)
    assert pin_validation(settings(folder, **places), s3_options) == pin_validation(local)
    with pytest.raises(ConfigError, match=r"validation.corpus: there is no file at"):
        read_collection(settings(folder, corpus=f"{store.uri}/none"), s3_options)
