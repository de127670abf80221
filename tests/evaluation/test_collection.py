from pathlib import Path

import pytest

from lsr_prod.errors import SourceError
from lsr_prod.evaluation.collection import read_judged

QUERIES = '{"_id": "1", "text": "first"}\n{"_id": "2", "text": "second"}\n'


def _files(folder: Path, qrels: str, queries: str = QUERIES) -> tuple[Path, Path]:
    (folder / "queries.jsonl").write_text(queries)
    (folder / "test.tsv").write_text(qrels)
    return folder / "queries.jsonl", folder / "test.tsv"


@pytest.mark.parametrize("qrels", ["query-id\tcorpus-id\tscore\n1\td\t2\n9\td\t1\n", "1 0 d 2\n9 0 d 1\n"])
def test_beir_and_trec_judgments_keep_known_queries_only(tmp_path: Path, qrels: str) -> None:
    judged = read_judged(*_files(tmp_path, qrels))
    assert judged.queries == {"1": "first"}
    assert [(row.query_id, row.doc_id, row.relevance) for row in judged.qrels] == [("1", "d", 2)]


@pytest.mark.parametrize(
    ("qrels", "queries", "message"),
    [
        ("query-id\tcorpus-id\tscore\n1\td\n", QUERIES, "test.tsv:2"),
        ("query-id\tcorpus-id\tscore\n1\td\thigh\n", QUERIES, "test.tsv:2"),
        ("query-id\tcorpus-id\tscore\n1\td\t1\n", QUERIES + "{\n", "queries.jsonl:3"),
        ("query-id\tcorpus-id\tscore\n7\td\t1\n", QUERIES, "do not belong together"),
    ],
)
def test_invalid_line_is_reported_with_number(tmp_path: Path, qrels: str, queries: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        read_judged(*_files(tmp_path, qrels, queries))
