from pathlib import Path

import ir_measures
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lsr_prod.errors import SourceError
from lsr_prod.evaluation.runs import read_run, write_run

IDS = st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=6)
SCORES = st.integers(-(2**30), 2**30).map(lambda score: score / 64)  # six decimals represent them exactly
RUNS = st.dictionaries(IDS, st.dictionaries(IDS, SCORES, min_size=1, max_size=5), max_size=4)


def test_written_run_is_read_back_by_ir_measures(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a.trec"
    write_run(path, {"q1": [("d2", 2.5), ("d1", 1.25)], "q2": []}, tag="threshold 0.4")
    run = list(ir_measures.read_trec_run(str(path)))
    assert [(row.query_id, row.doc_id, row.score) for row in run] == [("q1", "d2", 2.5), ("q1", "d1", 1.25)]
    assert path.read_text().splitlines()[0] == "q1 Q0 d2 1 2.500000 threshold_0.4"


@pytest.mark.parametrize(
    "spaced", [("q", "a b"), ("q 1", "a"), ("q", "a\tb"), ("q", "a\u2003b"), ("q\n", "a"), ("q", "")]
)
def test_run_whose_ids_have_white_space_is_written_as_json_lines(
    tmp_path: Path, spaced: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    query_id, doc_id = spaced
    rankings = {query_id: [(doc_id, 2.0), ("c", 0.1)]}
    place = write_run(tmp_path / "a.trec", rankings, tag="x")
    assert place == str(tmp_path / "a.jsonl")
    assert read_run(place) == rankings
    assert not (tmp_path / "a.trec").exists()
    assert "run written as JSON lines" in caplog.text


@settings(max_examples=60, deadline=None)
@given(run=RUNS)
def test_columns_hold_every_id_rank_and_score(tmp_path_factory, run):
    path = tmp_path_factory.mktemp("runs") / "a.trec"
    write_run(path, {query_id: list(scores.items()) for query_id, scores in run.items()}, tag="x")
    found: dict[str, dict[str, float]] = {}
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        query_id, _, doc_id, rank, score, _ = line.split(" ")
        scores = found.setdefault(query_id, {})
        scores[doc_id] = float(score)
        assert int(rank) == len(scores)
    assert found == run


@pytest.mark.parametrize(
    "text",
    [
        "1 Q0 a 7 0.5 other\n1 Q0 b 1 2 other\n\n2 Q0 c 1 -1e-3 other\n",
        '{"1": {"a": 0.5, "b": 2}, "2": {"c": -0.001}}',
        '{\n  "1": {"a": 0.5, "b": 2},\n  "2": {"c": -0.001}\n}\n',
        '{"1": {"b": 2, "a": 0.5}}\n{"2": {"c": -0.001}}\n',
        '{"query_id": 1, "doc_id": "a", "score": 0.5}\n{"query_id": "1", "doc_id": "b", "score": 2}\n'
        '{"query_id": "2", "doc_id": "c", "score": -0.001}\n',
    ],
)
def test_run_of_every_format_is_sorted_by_score(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").write_text(text)
    assert read_run(str(tmp_path / "run")) == {"1": [("b", 2.0), ("a", 0.5)], "2": [("c", -0.001)]}


def test_ties_are_ordered_by_falling_id_as_in_trec_eval(tmp_path: Path) -> None:
    (tmp_path / "run").write_text('{"1": {"a": 1, "c": 1, "b": 1, "d": 2}}')
    assert [doc_id for doc_id, _ in read_run(str(tmp_path / "run"))["1"]] == ["d", "c", "b", "a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 Q0 a 1 2.0 x\n1 Q0 a 1\n", r"run:2 is not a line of a run; give six columns \(query Q0 document rank"),
        ("1 Q0 a 1 high x\n", "run:1 is not a line"),
        ("1 Q0 a 1 nan x\n", "run:1 has the score nan"),
        ("1 Q0 a 1 2 x\n1 Q0 a 2 1 x\n", "run:2 ranks document 'a' twice for query '1'"),
        ('{"query_id": "1", "doc_id": "a"}\n', "run:1 is not a line"),
        ('{"1": ["a", "b"]}\n', "run:1 is not a line"),
        ('{"1": {"a": 1}}\n{"2":\n', "run:2 is not a line"),
        ('{\n"1": {"a": 1},\n"2"}\n', "run:3 is not JSON"),
    ],
)
def test_invalid_run_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run").write_text(text)
    with pytest.raises(SourceError, match=message):
        read_run(str(tmp_path / "run"))


@settings(max_examples=30, deadline=None)
@given(run=RUNS)
@example(run={"{": {"a": 1.0}, "{}": {"a": 2.0}})
def test_written_run_is_read_back(tmp_path_factory, run):
    path = tmp_path_factory.mktemp("runs") / "a.trec"
    write_run(path, {query_id: list(scores.items()) for query_id, scores in run.items()}, tag="x")
    assert {query_id: dict(ranking) for query_id, ranking in read_run(str(path)).items()} == run
