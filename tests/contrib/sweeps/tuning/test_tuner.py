import json
from pathlib import Path
from typing import Any

import pytest

from lsr_prod import Index
from lsr_prod.errors import ConfigError
from lsr_prod_contrib.sweeps.tuning import TuneReport, tune_index
from tests.contrib.sweeps.tuning.settings import deployment


@pytest.fixture(scope="module")
def exhaustive(index: Index, places: dict[str, str]) -> TuneReport:
    return tune_index(deployment(index, places, search="exhaustive"))


def test_refined_choice_is_close_to_the_exhaustive_one(
    exhaustive: TuneReport, index: Index, places: dict[str, str]
) -> None:
    refined = tune_index(deployment(index, places, threads=2))
    assert len(exhaustive.curve) == 2 * (24 + 1 + 1)
    assert len(refined.curve) < len(exhaustive.curve)
    assert exhaustive.value == max(value for _, value in exhaustive.curve)
    assert refined.value == max(value for _, value in refined.curve)
    assert refined.value >= exhaustive.value - 0.005


def test_report_states_cross_validated_value_and_baselines(exhaustive: TuneReport) -> None:
    result = exhaustive.result()
    assert result["low"] <= result["cross_validated"] <= result["high"]
    assert result["cross_validated"] <= result["value"]
    assert result["no_words"] == max(row["value"] for row in result["curve"] if row["hybrid_weight"] is None)
    assert len(result["folds"]) == 2
    assert str(exhaustive.chosen) in result["sentence"]
    assert 0 < result["bm25"] <= 1


def test_output_has_report_and_patch(index: Index, places: dict[str, str], tmp_path: Path) -> None:
    report = tune_index(deployment(index, places, output=str(tmp_path / "tuned"), thresholds=[0.0], max_queries=3))
    assert json.loads((tmp_path / "tuned" / "tune.json").read_text()) == json.loads(json.dumps(report.result()))
    assert (tmp_path / "tuned" / "patch.yaml").read_text().startswith(f"# {report.sentence}")
    assert report.queries == 3


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"queries": "absent"}, "tune.queries"),
        ({"index": "absent"}, "tune.index"),
        ({"measure": "nDGC@10"}, "tune.measure"),
        ({"folds": 5}, "tune.folds"),
    ],
)
def test_impossible_setting_is_refused(
    change: dict[str, Any], field: str, index: Index, places: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as raised:
        tune_index(deployment(index, places, output=str(tmp_path / "out"), **change))
    assert raised.value.field == field
    assert list(tmp_path.iterdir()) == []


def test_index_without_words_is_refused(places: dict[str, str], tiny_bundle: Path) -> None:
    with (
        Index.from_texts({"d1": "text"}, tiny_bundle) as plain,
        pytest.raises(ConfigError, match="has no postings of words"),
    ):
        tune_index(deployment(plain, places))
