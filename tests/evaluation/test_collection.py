from pathlib import Path

import pytest

from lsr_prod.errors import SourceError
from lsr_prod.evaluation.collection import read_judged

QUERIES = '{"_id": "1", "text": "first"}\n{"_id": "2", "text": "second"}\n'


def _files(folder: Path, qrels: str, queries: str = QUERIES) -> tuple[Path, Path]:
    (folder / "queries.jsonl").write_text(queries)
    (folder / "test.tsv").write_text(qrels)
    return folder / "queries.jsonl", folder / "test.tsv"


JSON_QRELS = (
    '{"query_id": "1", "doc_id": "d", "relevance": 2}\n\n{"query_id": 9, "doc_id": "d", "relevance": 1.0, "by": "x"}\n'
)


@pytest.mark.parametrize("queries", [QUERIES, "1\tfirst\n2\tsecond\n", "\ufeffqid\tquery\n1\tfirst\r\n2\tsecond\r\n"])
@pytest.mark.parametrize(
    "qrels",
    [
        "query-id\tcorpus-id\tscore\n1\td\t2\n9\td\t1\n",
        "1\td\t2\n9\td\t1\n",
        "1 0 d 2\n9 0 d 1\n",
        "1\t0\td\t2\r\n9\t0\td\t1\r\n",
        JSON_QRELS,
    ],
)
def test_every_format_is_recognized_and_keeps_known_queries_only(tmp_path: Path, qrels: str, queries: str) -> None:
    judged = read_judged(*_files(tmp_path, qrels, queries))
    assert judged.queries == {"1": "first"}
    assert [(row.query_id, row.doc_id, row.relevance) for row in judged.qrels] == [("1", "d", 2)]


@pytest.mark.parametrize(
    ("qrels", "queries", "message"),
    [
        ("query-id\tcorpus-id\tscore\n1\td\n", QUERIES, "test.tsv:2"),
        ("query-id\tcorpus-id\tscore\n1\td\thigh\n", QUERIES, "test.tsv:2"),
        ("query-id\tcorpus-id\tscore\n1\td\t1\n", QUERIES + "{\n", "queries.jsonl:3"),
        ("query-id\tcorpus-id\tscore\n7\td\t1\n", QUERIES, "do not belong together"),
        ("1 0 d 1\n1 0 d\n", QUERIES, "test.tsv:2 .* needs query, iteration, document, relevance"),
        ("1 d\n", QUERIES, r"test.tsv:1 .* corpus-id, score \(BEIR\), .* \(TREC\), or JSON"),
        ("\n" + JSON_QRELS.replace("1.0", "1.5"), QUERIES, "test.tsv:4 .* needs query_id, doc_id and relevance"),
        (JSON_QRELS + "1 0 d 1\n", QUERIES, "test.tsv:4"),
        (JSON_QRELS, QUERIES + QUERIES, "queries.jsonl:3 repeats the query id '1'"),
        (JSON_QRELS, "1\tfirst\n2 second\n", "queries.jsonl:2 .* needs id, tab and text"),
        (JSON_QRELS, '{"_id": "1", "text": null}', "queries.jsonl:1"),
        (JSON_QRELS, '{"_id": "1", "text": "\\ud800"}', "queries.jsonl:1"),
    ],
)
def test_invalid_line_is_reported_with_number(tmp_path: Path, qrels: str, queries: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        read_judged(*_files(tmp_path, qrels, queries))


def test_file_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    queries, qrels = _files(tmp_path, "1 0 d 1\n")
    queries.write_bytes(b"1\tcaf\xe9\n")
    with pytest.raises(SourceError, match=r"queries.jsonl cannot be read as UTF-8"):
        read_judged(queries, qrels)
