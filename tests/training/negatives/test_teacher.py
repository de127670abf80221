"""Tests of teacher scores: lookup by query and document, and errors for invalid lines."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsr_prod.config import TeacherScoresSettings
from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.training.negatives.inputs import TeacherScores, cut_scores, read_scores
from tests.training.negatives.conftest import write_lines


def read(paths: list[Path], key: str = "query") -> TeacherScores:
    section = TeacherScoresSettings.model_validate({"paths": [str(path) for path in paths], "key": key})
    return TeacherScores.of(read_scores(piece, section, {}) for piece in cut_scores(section, {}))


def test_scores_of_several_files_are_merged(tmp_path: Path):
    first = write_lines(tmp_path / "1.jsonl", [{"query": "a  query", "doc_id": "1", "score": 2.5}])
    second = write_lines(
        tmp_path / "2.jsonl",
        [{"query": "a query", "doc_id": "2", "score": -3}, {"query": "b", "doc_id": 1, "score": 0.1}],
    )
    scores = read([first, second])
    assert scores.of_pair("a query", "1") == 2.5
    assert scores.of_pair(" a query", "2") == -3
    assert scores.of_pair("b", "1") == float(np.float32(0.1))
    assert scores.of_pair("b", "2") is None
    assert scores.of_pair("", "") is None


def test_queries_can_be_named_by_id(tmp_path: Path):
    path = write_lines(tmp_path / "1.jsonl", [{"query_id": 7, "doc_id": "x", "score": 1}])
    assert read([path], "query_id").of_pair("7", "x") == 1


def test_equal_scores_of_a_pair_are_merged_and_different_scores_are_rejected(tmp_path: Path):
    line = {"query": "q", "doc_id": "1", "score": 2}
    assert len(read([write_lines(tmp_path / "1.jsonl", [line, line])]).keys) == 1
    with pytest.raises(SourceError, match="two scores for one query"):
        read([write_lines(tmp_path / "2.jsonl", [line, {**line, "score": 3}])])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"query": "q", "doc_id": "1"}, "score is absent"),
        ('{"query": "q", "doc_id": "1", "score": NaN}', "not a finite number"),
        ({"query": "q", "doc_id": "1", "score": "high"}, "not a finite number"),
        ({"query": "q", "score": 1}, "doc_id is absent"),
        ({"query_id": "q", "doc_id": "1", "score": 1}, "query is absent"),
        ("{", "Expecting property name"),
    ],
)
def test_invalid_line_raises_error_with_file_and_position(tmp_path: Path, line: Any, problem: str):
    good = {"query": "q", "doc_id": "1", "score": 1}
    path = write_lines(tmp_path / "scores.jsonl", [good, line])
    with pytest.raises(SourceError, match=rf"scores\.jsonl at byte \d+: .*{problem}"):
        read([path])


def test_wrong_paths_raise_config_error(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"^mine\.teacher\.paths: there is nothing"):
        read([tmp_path / "absent"])
    (tmp_path / "scores.tsv").write_text("a\tb\n")
    with pytest.raises(ConfigError, match=r"^mine\.teacher\.paths: .* is tsv; give JSONL"):
        read([tmp_path / "scores.tsv"])
