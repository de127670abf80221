from pathlib import Path
from typing import Any

import pytest

from lsr_prod.config import Deployment
from lsr_prod.errors import ConfigError
from lsr_prod_contrib.sweeps.plan import SweepPlan, make_plan


def plan(section: dict[str, Any], folder: Path, **changes: Any) -> SweepPlan:
    return make_plan(Deployment.model_validate({"sweep": {**section, "output": str(folder / "out"), **changes}}))


def test_every_combination_is_one_point_in_a_group_per_dk(section: dict[str, Any], tmp_path: Path) -> None:
    made = plan(section, tmp_path, hybrid_weights=[1.0])
    assert len(made.points) == len({point.name for point in made.points}) == 3 * 2 * 2 * 2
    assert [len(group.points) for group in made.groups] == [8, 8, 8]
    pairs = plan(section, tmp_path, prunings=[(3, 8), (0, 0)])
    assert [(point.setting.qk, point.setting.dk) for point in pairs.points] == [(3, 8)] * 2 + [(0, 0)] * 2


def test_longer_lists_keep_the_names_of_earlier_points(section: dict[str, Any], tmp_path: Path) -> None:
    before = {point.name for point in plan(section, tmp_path).points}
    after = {point.name for point in plan(section, tmp_path, thresholds=[0.0, 0.2, 0.4], qk=[0, 3, 5]).points}
    assert before < after


@pytest.mark.parametrize("change", [{"measures": ["RR@10"]}, {"collections": {"max_queries": 3}}])
def test_other_inputs_give_other_points(change: dict[str, Any], section: dict[str, Any], tmp_path: Path) -> None:
    if "collections" in change:
        change = {"collections": [{**section["collections"][0], **change["collections"]}]}
    before, after = ({point.name for point in plan(section, tmp_path, **one).points} for one in ({}, change))
    assert not before & after


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"dk": [100_000]}, "sweep.dk", "dk 100000 is more than the"),
        ({"prunings": [[100_000, 8]]}, "sweep.prunings", "qk 100000 is more than the"),
        ({"measures": ["nDGC@10"]}, "sweep.measures", "a measure is unknown"),
        ({"collections": {"corpus": "absent.jsonl"}}, "sweep.collections.small.corpus", "no file at absent.jsonl"),
        ({"collections": {"documents": 1}}, "sweep.collections.small.documents", "1 is less than the"),
    ],
)
def test_impossible_setting_is_refused_before_anything_is_written(
    change: dict[str, Any], field: str, problem: str, section: dict[str, Any], tmp_path: Path
) -> None:
    if "collections" in change:
        change = {"collections": [{**section["collections"][0], **change["collections"]}]}
    with pytest.raises(ConfigError) as raised:
        plan(section, tmp_path, **change)
    assert raised.value.field == field
    assert problem in raised.value.problem
    assert "validation" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []
