from pathlib import Path

import ir_measures
import numpy as np
import pytest

from benchmarks.train.pruning_report import compared, draw, rows, sentence, summary, table
from lsr_prod.evaluation.validation import Collection
from lsr_prod.evaluation.vector_evaluation import LevelReport

COLLECTION = Collection(
    {"a": "x", "b": "y"},
    {"q0": "one", "q1": "two", "q2": "three"},
    [ir_measures.Qrel("q0", "a", 1), ir_measures.Qrel("q1", "a", 1), ir_measures.Qrel("q2", "b", 1)],
)


def reports(values: list[float]) -> list[LevelReport]:
    """Unpruned at threshold 0, then (5, 10) at thresholds 0 and 0.6, where all is a half."""
    found = []
    for qk, dk, threshold in ((0, 0, 0.0), (5, 10, 0.0), (5, 10, 0.6)):
        by_query = np.array(values) * (0.5 if threshold else 1.0)
        measures = {name: float(by_query.mean()) for name in ("RR@10", "R@10")}
        both = {"RR@10": by_query, "R@10": by_query}
        found.append(
            LevelReport(
                qk=qk,
                dk=dk,
                threshold=threshold,
                measures=measures,
                by_query=both,
                l0_query=qk or 20,
                l0_document=dk or 40,
                flops=0.1 if qk else 1.0,
                matched=7.0,
            )
        )
    return found


MEASURED = {
    "theirs": [reports([0.0, 0.2, 0.4]), reports([0.2, 0.4, 0.6])],
    "ours": [reports([0.3, 0.3, 0.6]), reports([0.3, 0.5, 0.7])],
}


def test_a_row_is_the_mean_over_the_seeds() -> None:
    found = rows(MEASURED)

    assert [(row.model, row.qk, row.dk, row.threshold) for row in found] == [
        ("theirs", 0, 0, 0.0), ("ours", 0, 0, 0.0), ("theirs", 5, 10, 0.0), ("ours", 5, 10, 0.0),
        ("theirs", 5, 10, 0.6), ("ours", 5, 10, 0.6),
    ]  # fmt: skip
    theirs = found[0]
    assert theirs.rr10 == pytest.approx(0.3)  # of 0.2 and 0.4
    assert theirs.rr10_spread == pytest.approx(0.2 / np.sqrt(2))
    assert (theirs.l0_query, theirs.l0_document, theirs.flops) == (20, 40, 1.0)


def test_one_seed_has_no_spread() -> None:
    assert rows({"one": [reports([0.1, 0.2, 0.3])]})[0].r10_spread == 0


def test_the_table_has_a_line_a_row() -> None:
    lines = table("tldr", rows(MEASURED)).splitlines()

    assert len(lines) == 2 + 6
    assert lines[2].split()[:4] == ["(0,", "0)", "0.0", "theirs"]
    assert "0.3000 ±0.1414" in lines[2]


def test_the_comparison_is_at_the_level_and_threshold_asked_for() -> None:
    whole = compared(MEASURED, COLLECTION, "ours", "theirs", level=(5, 10), threshold=0.0)["RR@10"]
    half = compared(MEASURED, COLLECTION, "ours", "theirs", level=(5, 10), threshold=0.6)["RR@10"]

    assert whole.difference == pytest.approx(0.15)  # 0.45 against 0.3
    assert half.difference == pytest.approx(0.075)
    assert (whole.wins, whole.seeds) == (2, 2)
    assert whole.p == pytest.approx(0.5, abs=0.02)  # two pages
    assert "better in 2 of 2 seeds" in sentence("ours", "theirs", "(5, 10)", {"RR@10": whole})


def test_the_summary_names_what_was_judged() -> None:
    tests = {"pruning": compared(MEASURED, COLLECTION, "ours", "theirs", level=(5, 10), threshold=0.0)}

    found = summary("tldr", rows(MEASURED), tests)

    assert found["tldr/ours/5,10/0.6"]["rr10"] == pytest.approx(0.225)
    assert found["tldr/pruning/R@10"]["difference"] == pytest.approx(0.15)


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    draw({"tldr": rows(MEASURED), "scifact": rows(MEASURED)}, tmp_path / "picture.png")

    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"
