"""The example of Ray Data makes the table and the index that the jobs make of the same passages."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from lsr_prod.encoding import encode_corpus, table_digest
from lsr_prod.search import Searcher

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_data"


@pytest.mark.long
@pytest.mark.usefixtures("ray_local")
def test_table_of_the_example_equals_that_of_the_encode_job(
    tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from pipeline import passages, settings

    documents = [
        {"id": f"d{i}", "title": f"animal {i}", "text": f"word{i} " + "the quick brown fox " * i} for i in range(30)
    ]
    corpus, split = tmp_path / "corpus.jsonl", tmp_path / "passages.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in documents))
    split.write_text("".join(json.dumps(row) + "\n" for one in documents for row in passages(one, 20)))
    arguments = ["--corpus", corpus, "--bundle", tiny_bundle, "--output", tmp_path, "--words", 20, "--actors", 1]
    monkeypatch.setattr(sys, "argv", ["pipeline.py", *map(str, arguments)])
    runpy.run_path(str(EXAMPLE / "pipeline.py"), run_name="__main__")  # on the cluster of the tests
    job = settings(split, tiny_bundle, tmp_path / "job", 1)
    encode_corpus(job)
    assert table_digest(str(tmp_path / "table")) == table_digest(str(tmp_path / "job" / "table"))
    with Searcher.open(tmp_path / "index") as searcher:
        assert searcher.search("word7", k=1).hits[0].doc_id == "d7#0"
