import json

import pytest

from benchmarks.search.contestants import ARRAYS, PUBLIC, SINDI_EXACT
from benchmarks.search.quick import PASSES, RECORDED, behind, median_ratio, values_of
from tests.benchmarks.search.test_report import by_name, row


def test_value_more_than_15_percent_above_its_record_fails() -> None:
    recorded = {"public": 1.0, "arrays": 0.8}
    assert behind({"public": 1.149, "arrays": 0.5}, recorded) == []
    (failure,) = behind({"public": 1.16, "arrays": 0.8}, recorded)
    assert failure == "public: 1.16, more than 15% above the recorded 1.0"


def test_recorded_value_that_is_not_measured_fails() -> None:
    (failure,) = behind({"new": 1.0}, {"gone": 2.0})
    assert failure.startswith("gone: recorded as 2.0, but not measured")


def test_ratio_is_not_moved_by_one_disturbed_pass() -> None:
    mine, theirs = [2.0, 2.0] * PASSES, [4.0, 4.0] * PASSES
    mine[:2] = [100.0, 100.0]
    assert median_ratio(mine, theirs) == 0.5


def test_engine_below_the_recall_is_rejected() -> None:
    times = [row(name, 10.0, recall=recall) for name, recall in ((PUBLIC, 1.0), (ARRAYS, 1.0), (SINDI_EXACT, 0.9))]
    with pytest.raises(RuntimeError, match="sindi exact has recall@10"):
        values_of("small", by_name(*times))


def test_recorded_values_are_those_that_a_run_measures() -> None:
    names = set(json.loads(RECORDED.read_text()))
    calls = {f"{call}_sindi_{c}" for call in ("public", "arrays") for c in ("splade7", "splade25", "topics20", "small")}
    calls |= {f"{call}_seismic_topics20" for call in ("public", "arrays")}
    sizes = {f"bytes_per_doc_{c}" for c in ("splade7", "splade25", "topics20", "small")}
    assert names == {f"{call}_k{k}" for call in calls for k in (10, 100)} | sizes
