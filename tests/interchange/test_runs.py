from pathlib import Path

import ir_measures
import pytest

from lsr_prod.interchange.runs import write_run


def test_what_is_written_is_read_back_by_ir_measures(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a.trec"
    write_run(path, {"q1": [("d2", 2.5), ("d1", 1.25)], "q2": []}, tag="threshold 0.4")
    run = list(ir_measures.read_trec_run(str(path)))
    assert [(row.query_id, row.doc_id, row.score) for row in run] == [("q1", "d2", 2.5), ("q1", "d1", 1.25)]
    assert path.read_text().splitlines()[0] == "q1 Q0 d2 1 2.500000 threshold_0.4"


def test_an_id_with_white_space_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="white space"):
        write_run(tmp_path / "a.trec", {"q": [("a b", 1.0)]}, tag="x")
