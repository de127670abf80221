from pathlib import Path

import ir_measures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.errors import SourceError
from lsr_prod.interchange.runs import ranked, read_beir_run, read_run, write_beir_run, write_run

IDS = st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=6)
SCORES = st.integers(-(2**30), 2**30).map(lambda score: score / 64)  # six decimals hold them
RUNS = st.dictionaries(IDS, st.dictionaries(IDS, SCORES, min_size=1, max_size=5), max_size=4)


def test_what_is_written_is_read_back_by_ir_measures(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a.trec"
    write_run(path, {"q1": [("d2", 2.5), ("d1", 1.25)], "q2": []}, tag="threshold 0.4")
    run = list(ir_measures.read_trec_run(str(path)))
    assert [(row.query_id, row.doc_id, row.score) for row in run] == [("q1", "d2", 2.5), ("q1", "d1", 1.25)]
    assert path.read_text().splitlines()[0] == "q1 Q0 d2 1 2.500000 threshold_0.4"


def test_an_id_with_white_space_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="white space"):
        write_run(tmp_path / "a.trec", {"q": [("a b", 1.0)]}, tag="x")


@settings(max_examples=60, deadline=None)
@given(run=RUNS)
def test_both_formats_give_back_what_was_written(tmp_path_factory, run):
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "a.trec", ranked(run), tag="x")
    write_beir_run(folder / "a.json", run)
    assert read_run(folder / "a.trec") == read_beir_run(folder / "a.json") == run


def test_a_ranking_is_by_falling_score_and_ties_by_id():
    assert ranked({"q": {"b": 1, "a": 1, "c": 2}}) == {"q": [("c", 2), ("a", 1), ("b", 1)]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q Q0 d 1 2.0\n", "a.trec:1 is no line"),
        ("\nq Q0 d 1 high x\n", "a.trec:2 is no line"),
        ("q Q0 d 1 nan x\n", "finite"),
        ("q Q0 d 1 2 x\nq Q0 d 2 1 x\n", "a.trec:2 names d of query q again"),
        ("q Q0 \udcff 1 2 x\n", "UTF-8"),
    ],
)
def test_a_damaged_trec_run_is_refused_with_its_line(tmp_path, text, words):
    (tmp_path / "a.trec").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SourceError, match=words):
        read_run(tmp_path / "a.trec")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"q": 1}', '{"q": {"d": "1"}}', '{"q": {"d": NaN}}', '{"q": {"d": true}}']
)
def test_a_damaged_beir_run_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(SourceError, match=r"a\.json"):
        read_beir_run(tmp_path / "a.json")


def test_a_score_that_json_cannot_hold_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_beir_run(tmp_path / "a.json", {"q": {"d": float("inf")}})
    assert list(tmp_path.iterdir()) == []
