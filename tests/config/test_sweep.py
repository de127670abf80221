from typing import Any

import pytest
from pydantic import ValidationError

from lsr_prod.config import SweepSettings, TuneSettings

PLACES = {"corpus": "c.jsonl", "queries": "q.jsonl", "qrels": "q.tsv"}
SWEEP = {"models": [{"name": "m", "bundle": "b"}], "collections": [{"name": "c", **PLACES}], "output": "o"}
TUNE = {"index": "i", "queries": "q.jsonl", "qrels": "q.tsv"}


def test_prunings_replace_the_product_of_the_lists() -> None:
    assert SweepSettings(**SWEEP, qk=[0, 4], dk=[8]).pairs == [(0, 8), (4, 8)]  # type: ignore[arg-type]
    assert SweepSettings(**SWEEP, qk=[0, 4], prunings=[[1, 2], [1, 2]]).pairs == [(1, 2)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"models": [{"name": "m", "bundle": "a"}, {"name": "m", "bundle": "b"}]}, "two entries have one name"),
        ({"models": [{"name": "../m", "bundle": "a"}]}, "pattern"),
        ({"qk": [-1]}, "negative"),
        ({"prunings": [[3, -1]]}, "negative"),
        ({"thresholds": [1.5]}, "1.5 is not a share"),
        ({"hybrid_weights": [0.0]}, "0.0 is not a weight"),
        ({"measure": "AP"}, "one of the measures"),
        ({"within": 1.0}, "less than 1"),
    ],
)
def test_impossible_sweep_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        SweepSettings.model_validate(SWEEP | change)


def test_tuner_with_exchanged_limits_is_refused() -> None:
    with pytest.raises(ValidationError, match="lowest_weight 2 is above highest_weight 1"):
        TuneSettings.model_validate({**TUNE, "lowest_weight": 2, "highest_weight": 1})
