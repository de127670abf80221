"""Inconsistent settings of mining are refused with a sentence."""

from typing import Any

import pytest
from pydantic import ValidationError

from lsr_prod.config import MineSettings

BASE: dict[str, Any] = {"data": {"paths": ["pairs.jsonl"], "kind": "pairs"}, "index": "index", "output": "output"}
MODEL = {"kind": "sparse", "model": "model"}
TEACHER = {"paths": ["scores.jsonl"]}


def test_defaults_are_valid():
    section = MineSettings.model_validate(BASE)
    assert (section.depth, section.negatives, section.sample) == (100, 8, "top")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"data": {"paths": ["t"], "kind": "texts"}}, "data.kind has to be pairs, triples or negatives"),
        ({"data": {"paths": ["t"], "kind": "scores"}}, "data.kind has to be pairs, triples or negatives"),
        ({"depth": 10, "skip": 4, "negatives": 7}, "need a depth of 11 or more, not 10"),
        ({"at_least": 9}, "at_least 9 is more than negatives 8"),
        ({"depth": 10_001}, "less than or equal to 10000"),
        ({"negatives": 0}, "greater than or equal to 1"),
        ({"margin_ratio": 1.1}, "less than or equal to 1"),
        ({"own_share": 0}, "greater than 0"),
        ({"max_suspicious": 1.1}, "less than or equal to 1"),
        ({"margin": float("inf")}, "finite"),
        ({"teacher": TEACHER}, "margin, margin_ratio or scores; set one"),
        ({"teacher": {**TEACHER, "key": "query_id"}, "margin": 1}, "name the column of the query's id"),
        ({"teacher": {**TEACHER, "unscored": "keep"}, "scores": True}, "let teacher.unscored be drop"),
        ({"teacher": {}, "margin": 1}, "either teacher.paths or teacher.model"),
        ({"teacher": {**TEACHER, "model": MODEL}, "margin": 1}, "either teacher.paths or teacher.model"),
        ({"teacher": {"model": MODEL, "key": "query_id"}, "query_id": "q", "margin": 1}, "let teacher.key be query"),
        ({"teacher": {"model": {**MODEL, "precision": "fp16"}}, "margin": 1}, "fp16 needs teacher.use_gpu"),
    ],
)
def test_inconsistent_settings_are_refused(changes: dict[str, Any], sentence: str):
    with pytest.raises(ValidationError, match=sentence):
        MineSettings.model_validate({**BASE, **changes})
