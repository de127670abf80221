"""A small collection, and a sweep of it with a tiny model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

WORDS = ("lock", "thread", "json", "file", "root", "square", "event", "signal", "object", "string", "gzip", "read")
QUERIES = {"q1": "thread lock", "q2": "square root", "q3": "json string", "q4": "read a gzip file"}
SETTINGS: Mapping[str, Any] = {
    "qk": [0, 3], "dk": [0, 8, 16], "thresholds": [0.0, 0.4], "measures": ["RR@10", "R@5"], "slice_documents": 10,
}  # fmt: skip


def write_collection(folder: Path) -> dict[str, str]:
    """Write 24 documents, 4 queries and their judgments; returns the paths by setting."""
    folder.mkdir(parents=True)
    texts = {f"d{i}": f"The {WORDS[i % 12]} and the {WORDS[(i * 5 + 1) % 12]} of number {i}." for i in range(24)}
    corpus = [json.dumps({"_id": name, "title": "", "text": text}) for name, text in texts.items()]
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    (folder / "queries.jsonl").write_text("\n".join(json.dumps({"_id": n, "text": t}) for n, t in QUERIES.items()))
    rows = [f"{q}\t{d}\t1" for q, t in QUERIES.items() for d, text in texts.items() if t.split()[-1] in text]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    return {name: str(folder / file) for name, file in FILES.items()}


FILES = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels.tsv"}


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of the files of the collection."""
    return write_collection(tmp_path_factory.mktemp("collection") / "small")


@pytest.fixture(scope="module")
def section(collection: dict[str, str], tiny_bundle: Path) -> dict[str, Any]:
    """The section ``sweep`` without an output."""
    return {
        "models": [{"name": "tiny", "bundle": str(tiny_bundle)}],
        "collections": [{"name": "small", **collection}],
        **SETTINGS,
    }
