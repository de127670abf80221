from pathlib import Path

import ir_measures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.interchange.runs import write_run

IDS = st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=6)
SCORES = st.integers(-(2**30), 2**30).map(lambda score: score / 64)  # six decimals represent them exactly
RUNS = st.dictionaries(IDS, st.dictionaries(IDS, SCORES, min_size=1, max_size=5), max_size=4)


def test_written_run_is_read_back_by_ir_measures(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a.trec"
    write_run(path, {"q1": [("d2", 2.5), ("d1", 1.25)], "q2": []}, tag="threshold 0.4")
    run = list(ir_measures.read_trec_run(str(path)))
    assert [(row.query_id, row.doc_id, row.score) for row in run] == [("q1", "d2", 2.5), ("q1", "d1", 1.25)]
    assert path.read_text().splitlines()[0] == "q1 Q0 d2 1 2.500000 threshold_0.4"


def test_id_with_white_space_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="white space"):
        write_run(tmp_path / "a.trec", {"q": [("a b", 1.0)]}, tag="x")


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
