from pathlib import Path

import ir_measures
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lsr_prod.errors import SourceError
from lsr_prod.evaluation.runs import read_run, write_run

IDS = st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=6)
SCORES = st.integers(-(2**30), 2**30).map(lambda score: score / 64)
RUNS = st.dictionaries(IDS, st.dictionaries(IDS, SCORES, min_size=1, max_size=5), max_size=4)


def test_written_run_is_read_back_by_ir_measures(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a.trec"
    write_run(path, {"q1": [("d2", 2.5), ("d1", 1.25)], "q2": []}, tag="threshold 0.4")
    run = list(ir_measures.read_trec_run(str(path)))
    assert [(row.query_id, row.doc_id, row.score) for row in run] == [("q1", "d2", 2.5), ("q1", "d1", 1.25)]
    assert path.read_text().splitlines()[0] == "q1 Q0 d2 1 2.5 threshold_0.4"


@pytest.mark.parametrize("spaced", [("q", "a b"), ("q 1", "a"), ("q", "a\tb"), ("q", "a\u2003b"), ("q\n", "a")])
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
        "# a comment\n1 a 0.5\n1 b 2\n2 c -0.001\n",
        "1\tb\t2\n1\ta\t0.5\n2\tc\t-0.001\n",
        'score,qid,"docno",rank\n0.5,1,a,1\n2,1,"b",2\n-1e-3,2,c,1\n',
        '[{"qid": 1, "pid": "a", "score": 0.5}, {"qid": 1, "pid": "b", "score": 2},\n'
        '{"qid": 2, "pid": "c", "score": -0.001}]\n',
    ],
)
def test_run_of_every_format_is_sorted_by_score(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").write_text(text)
    assert read_run(str(tmp_path / "run")) == {"1": [("b", 2.0), ("a", 0.5)], "2": [("c", -0.001)]}


@pytest.mark.parametrize(
    ("text", "ranking"),
    [
        ("1 a 1\n1 b 2\n2 c 1\n", [("a", -1.0), ("b", -2.0)]),
        ("1\ta\t0\n2\tc\t0\n1\tb\t3\n", [("a", 0.0), ("b", -3.0)]),
        ("1 a 2\n1 b 1\n2 c 1\n", [("a", 2.0), ("b", 1.0)]),
        ("1 b 1\n1 a 1.5\n", [("a", 1.5), ("b", 1.0)]),
        ("1 a 7\n2 b 9\n", [("a", 7.0)]),
        ("qid\tpid\trank\n1\tb\t2\n1\ta\t1\n", [("a", -1.0), ("b", -2.0)]),
        ('{"query_id": 1, "doc_id": "a", "rank": 1}\n', [("a", -1.0)]),
    ],
)
def test_third_column_is_a_rank_if_it_has_whole_numbers_that_rise(
    tmp_path: Path, text: str, ranking: list[tuple[str, float]]
) -> None:
    (tmp_path / "run").write_text(text)
    assert read_run(str(tmp_path / "run"))["1"] == ranking


def test_ties_are_ordered_by_falling_id_as_in_trec_eval(tmp_path: Path) -> None:
    (tmp_path / "run").write_text('{"1": {"a": 1, "c": 1, "b": 1, "d": 2}}')
    assert [doc_id for doc_id, _ in read_run(str(tmp_path / "run"))["1"]] == ["d", "c", "b", "a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1 Q0 a 1 2.0 x\n1 Q0 a 1\n",
            r"run:2 is not a line of a run \(the number of columns is 4, not 6\); give six columns",
        ),
        ("1 Q0 a 1 high x\n", "run:1 is not a line"),
        ("1 Q0 a 1 nan x\n", "run:1 has the score nan"),
        ("1 Q0 a 1 2 x\n1 Q0 a 2 1 x\n", "run:2 ranks document 'a' twice for query '1'"),
        ('{"query_id": "1", "doc_id": "a"}\n', "run:1 is not a line"),
        ('{"1": ["a", "b"]}\n', "run:1 is not a line"),
        ('{"1": {"a": 1}}\n{"2":\n', "run:2 is not a line"),
        ("1 a 3\n1 b 4\n2 a 2\n2 b 1\n", "neither rise nor fall in every query, .* add a header"),
        ("qid,docid\n1,a\n", r"run:2 .* \(it has neither score nor rank\)"),
        ('{"1": {"a": 1, "a": 2}}\n', "run:1 .* a key twice"),
        ('{"1": {"a": true}}\n', "run:1 .*True is no number"),
        ("[" * 100_000 + "\n", "run:1 .*not JSON"),
        ('{\n"1": {"a": 1},\n"2"}\n', "run:1 is not a line of a run .not JSON: .*line 3"),
    ],
)
def test_invalid_run_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run").write_text(text)
    with pytest.raises(SourceError, match=message):
        read_run(str(tmp_path / "run"))


@settings(max_examples=30, deadline=None)
@given(run=RUNS)
@example(run={"{": {"a": 1.0}, "{}": {"a": 2.0}})
@example(run={"#": {"a": 1.0}})
@example(run={"a,b,c,d,1,e": {"f": 1.0}})
def test_written_run_is_read_back(tmp_path_factory, run):
    path = tmp_path_factory.mktemp("runs") / "a.trec"
    write_run(path, {query_id: list(scores.items()) for query_id, scores in run.items()}, tag="x")
    assert {query_id: dict(ranking) for query_id, ranking in read_run(str(path)).items()} == run


def test_scores_that_differ_little_keep_their_order(tmp_path: Path) -> None:
    ranking = [(name, 1 / (10_000 + rank)) for rank, name in enumerate("abcde")]
    assert read_run(write_run(tmp_path / "a.trec", {"q": ranking}, tag="rrf")) == {"q": ranking}
