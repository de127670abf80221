"""Inconsistent settings of scoring are refused with a sentence."""

from typing import Any

import pytest
from pydantic import ValidationError

from lsr_prod.config import ScoreSettings

BASE: dict[str, Any] = {
    "data": {"paths": ["rows.jsonl"], "kind": "negatives"},
    "teacher": {"model": "model"},
    "output": "output",
}


def test_defaults_are_raw_logits_of_a_cross_encoder():
    teacher = ScoreSettings.model_validate(BASE).teacher
    assert (teacher.kind, teacher.activation, teacher.scale, teacher.precision) == (
        "cross_encoder",
        "none",
        1.0,
        "fp32",
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"data": {"paths": ["t"], "kind": "texts"}}, "data.kind has to be pairs, triples or negatives"),
        ({"data": {"paths": ["t"], "kind": "scores"}}, "data.kind has to be pairs, triples or negatives"),
        ({"teacher": {"model": "m", "pooling": "cls"}}, "pooling is a setting of kind dense; kind is cross_encoder"),
        ({"teacher": {"model": "m", "kind": "dense", "label": 1}}, "label is a setting of kind cross_encoder"),
        ({"teacher": {"model": "m", "kind": "sparse", "max_length": 9}}, "of kind cross_encoder or dense"),
        ({"teacher": {"model": "m", "kind": "sparse", "query_prompt": ""}}, "query_prompt is a setting of kind dense"),
        ({"teacher": {"model": "m", "kind": "dense", "activation": "sigmoid"}}, "dot products have no activation"),
        ({"teacher": {"model": "m", "scale": 0}}, "greater than 0"),
        ({"teacher": {"model": "m", "label": 2}}, "less than or equal to 1"),
        ({"teacher": {"model": "m", "precision": "fp16"}}, "fp16 needs use_gpu"),
    ],
)
def test_inconsistent_settings_are_refused(changes: dict[str, Any], sentence: str):
    with pytest.raises(ValidationError, match=sentence):
        ScoreSettings.model_validate({**BASE, **changes})
