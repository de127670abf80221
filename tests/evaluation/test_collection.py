import bz2
import gzip
import logging
import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.errors import SourceError, StorageError
from lsr_prod.evaluation.collection import read_judged, read_qrels, read_queries

QUERIES = '{"_id": "1", "text": "first"}\n{"_id": "2", "text": "second"}\n'


def _files(folder: Path, qrels: str, queries: str = QUERIES) -> tuple[Path, Path]:
    (folder / "queries.jsonl").write_text(queries)
    (folder / "test.tsv").write_text(qrels)
    return folder / "queries.jsonl", folder / "test.tsv"


def _grades(folder: Path, qrels: str) -> list[tuple[str, str, int]]:
    (folder / "qrels").write_text(qrels)
    return [(row.query_id, row.doc_id, row.relevance) for row in read_qrels(str(folder / "qrels"))]


JSON_QRELS = (
    '{"query_id": "1", "doc_id": "d", "relevance": 2}\n\n{"query_id": 9, "doc_id": "d", "relevance": 1.0, "by": "x"}\n'
)


@pytest.mark.parametrize("queries", [QUERIES, "1\tfirst\n2\tsecond\n", "\ufeffqid\tquery\r\n1\tfirst\r\n2\tsecond\r\n"])
@pytest.mark.parametrize(
    "qrels",
    [
        "query-id\tcorpus-id\tscore\n1\td\t2\n9\td\t1\n",
        "1\td\t2\n9\td\t1\n",
        "1 0 d 2\n9 0 d 1\n",
        "1\t0\td\t2\r\n9\t0\td\t1\r\n",
        JSON_QRELS,
        "\ufeffqid\tpid\trel\r\n1\td\t2\r\n9\td\t1\r\n",
        "qid pid rel\n1 d 2\n9 d 1\n",
        "# by hand\n1 d 2\n# more\n#\n9 d 1\n",
        "1 0 d 2 \n9 0 d 1\t\n",
        '"grade";"topic";"docno"\n"2.0";"1";"d"\n1;9;d\n',
        '"1","d","2"\n9, "d", 1\n',
        '"1"\t"d"\t2\n9\td\t1\n',
        "1,Q0,d,2\n9,Q0,d,1\n",
        '{"1": {"d": 2}, "9": {"d": 1}}',
        '[{"query-id": "1", "corpus-id": "d", "score": 2.0},\n{"query-id": "9", "corpus-id": "d", "score": 1.0}]',
    ],
)
def test_every_format_is_recognized_and_keeps_known_queries_only(tmp_path: Path, qrels: str, queries: str) -> None:
    judged = read_judged(*_files(tmp_path, qrels, queries))
    assert judged.queries == {"1": "first"}
    assert [(row.query_id, row.doc_id, row.relevance) for row in judged.qrels] == [("1", "d", 2)]


def test_compressed_and_parquet_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "q.tsv.gz").write_bytes(gzip.compress(b"1\terste\n2\tzweite\n"))
    with pa.CompressedOutputStream(str(tmp_path / "q.tsv.zst"), "zstd") as file:
        file.write(b"1\terste\n2\tzweite\n")
    pq.write_table(pa.table({"_id": [1, 2], "title": ["", ""], "text": ["erste", "zweite"]}), tmp_path / "q.parquet")
    for name in ("q.tsv.gz", "q.tsv.zst", "q.parquet"):
        assert dict(read_queries(str(tmp_path / name))) == {"1": "erste", "2": "zweite"}, name
    table = pa.table({"query-id": ["1"], "corpus-id": ["d"], "score": [1.0]})
    pq.write_table(table, tmp_path / "qrels.parquet")
    assert [row[:3] for row in read_qrels(str(tmp_path / "qrels.parquet"))] == [("1", "d", 1)]


@pytest.mark.parametrize("name", ["q.gz", "q.zst", "q.bz2", "q.xz", "q.lz4", "q.zip", "q.parquet"])
def test_damaged_file_is_reported(tmp_path: Path, name: str) -> None:
    data = {".bz2": bz2.compress, ".xz": lzma.compress}.get(Path(name).suffix, gzip.compress)(b"# first\n" * 90_000)
    (tmp_path / name).write_bytes(data[:-9])
    with pytest.raises((SourceError, StorageError), match=rf"{name} (cannot be|is no)"):
        list(read_queries(str(tmp_path / name)))


@pytest.mark.parametrize(
    ("qrels", "queries", "message"),
    [
        ("query-id\tcorpus-id\tscore\n1\td\n", QUERIES, "test.tsv:2"),
        ("query-id\tcorpus-id\tscore\n1\td\thigh\n", QUERIES, "test.tsv:2"),
        ("query-id\tcorpus-id\tscore\n1\td\t1\n", QUERIES + "{\n", "queries.jsonl:3"),
        ("query-id\tcorpus-id\tscore\n7\td\t1\n", QUERIES, "do not belong together"),
        ("1 0 d 1\n1 0 d\n", QUERIES, r"test.tsv:2 is not a judgment \(the number of columns is 3, not 4\)"),
        ("1 d\n", QUERIES, r"test.tsv:1 .* known names\); give .* \(TREC\), .* score, or JSON with query_id"),
        ("query\tcorpus\tscore\n1\td\t1\n", QUERIES, "test.tsv:1 .*neither a row nor a header with known names"),
        (JSON_QRELS + "1 0 d 1\n", QUERIES, "test.tsv:4"),
        ('{"query_id": "1", "doc_id": "d"}', QUERIES, r"test.tsv:1 .* \(it has no relevance\)"),
        ('{"query_id": null, "doc_id": "d", "relevance": 1}', QUERIES, "test.tsv:1 .*None is no id"),
        ('{"query_id": "1", "doc_id": "d", "relevance": true}', QUERIES, "test.tsv:1 .*True is no number"),
        ("qid,pid,rel\n,d,1\n", QUERIES, "test.tsv:2 .*'' is no id"),
        ('qid,pid,rel\n1,"d,1\n2,d,1\n', QUERIES, "test.tsv:2 is not a judgment"),
        ("1 0 d 1\n1 0 e 1_0\n", QUERIES, "test.tsv:2 .*'1_0' is no number"),
        ("1 0 d nan\n", QUERIES, "test.tsv:1 .*the grade nan is not between"),
        ("1 0 d 1\n1 0 e 1e9\n", QUERIES, "test.tsv:2 .*the grade 1e9 is not between -1000000 and 1000000"),
        (JSON_QRELS, QUERIES + QUERIES, "queries.jsonl:3 repeats the query id '1'"),
        (JSON_QRELS, "1\tfirst\n2 second\n", "queries.jsonl:2 .* give lines of id, tab and text"),
        (JSON_QRELS, "1,first\n", "queries.jsonl:1 .* a header such as id,text"),
        (JSON_QRELS, "id,text\n1,first, and more\n", r"queries.jsonl:2 .* \(the number of columns is 3, not 2\)"),
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


def test_fraction_of_a_grade_is_cut_off_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = _grades(tmp_path, "query-id\tcorpus-id\tscore\nq1\td1\t1.0\nq1\td2\t0.5\nq1\td3\t-0.5\nq1\td4\t2e0\n")
    assert found == [("q1", "d1", 1), ("q1", "d2", 0), ("q1", "d3", 0), ("q1", "d4", 2)]
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.fields["grades"] == 2  # type: ignore[attr-defined]


def test_grades_that_are_all_below_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="qrels has grades with fractions, but none of 1 or more"):
        _grades(tmp_path, "q1 d1 0.9\nq1 d2 0.5\n")
    assert _grades(tmp_path, "q1 d1 0\nq1 d2 -1\n") == [("q1", "d1", 0), ("q1", "d2", -1)]


def test_judgments_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"qrels:3 gives document 'd' of query 'q' the grade 0, but .* gives it 1"):
        _grades(tmp_path, "q 0 d 1\nq 0 e 1\nq 0 d 0\n")
    assert _grades(tmp_path, "q 0 d 1\nq 0 e 1\nq 0 d 1.0\n") == [("q", "d", 1), ("q", "e", 1)]


def test_judged_queries_without_a_text_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_judged(*_files(tmp_path, "1 d 1\n8 d 1\n9 d 1\n9 e 1\n"))
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.fields["queries"] == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        'id,text\nq1,"how to read a file, line by line"\n',
        'text;title;_id\n"how to read a file, line by line";x;q1\n',
        'query_id\ttext\nq1\t"how to read a file, line by line"\n',
        'id,text\n# a comment\nq1,"how to read a file,\n\n line by line"\n',
        '[\n  {"_id": "q1", "text": "how to read a file, line by line"}\n]\n',
    ],
)
def test_queries_of_a_table_with_header_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "queries.csv").write_text(text)
    found = {query_id: " ".join(one.split()) for query_id, one in read_queries(str(tmp_path / "queries.csv"))}
    assert found == {"q1": "how to read a file, line by line"}


def test_quotes_and_tabs_of_tsv_without_header_are_text(tmp_path: Path) -> None:
    (tmp_path / "queries.tsv").write_text('1\t"to be"\n2\ta, b\tc\n3\t"open\n')
    assert dict(read_queries(str(tmp_path / "queries.tsv"))) == {"1": '"to be"', "2": "a, b\tc", "3": '"open'}


IDS = st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=6)
CASES = st.dictionaries(st.tuples(IDS, IDS), st.integers(-2, 5), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(cases=CASES.filter(lambda cases: not any(query_id == "#" for query_id, _ in cases)))
def test_trec_judgments_with_any_ids_are_read_back(tmp_path_factory, cases):
    folder = tmp_path_factory.mktemp("qrels")
    text = "".join(f"{query_id} 0 {doc_id} {grade}\n" for (query_id, doc_id), grade in cases.items())
    assert {(query_id, doc_id): grade for query_id, doc_id, grade in _grades(folder, text)} == cases
