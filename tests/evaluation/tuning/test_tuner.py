import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ir_measures
import pytest

from lsr_prod import Index
from lsr_prod.config import Deployment
from lsr_prod.errors import ConfigError
from lsr_prod.evaluation.collection import read_judged
from lsr_prod.evaluation.tuning import TuneReport, tune_index
from lsr_prod.evaluation.tuning.candidates import Candidate
from lsr_prod.evaluation.tuning.tuner import CandidateValues
from lsr_prod.search import Hybrid
from tests.evaluation.sweeps.conftest import write_collection

SETTINGS = {"measure": "RR@10", "thresholds": [0.0, 0.4], "folds": 2, "steps_per_octave": 2}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_collection(tmp_path_factory.mktemp("tuning") / "small")


@pytest.fixture(scope="module")
def index(places: dict[str, str], tiny_bundle: Path) -> Iterator[Index]:
    rows = [json.loads(line) for line in Path(places["corpus"]).read_text().splitlines()]
    with Index.from_texts({row["_id"]: row["text"] for row in rows}, tiny_bundle, bm25=True) as index:
        yield index


def deployment(searched: Index, places: dict[str, str], **changes: Any) -> Deployment:
    judged = {name: places[name] for name in ("queries", "qrels")}
    tune = {"index": str(searched.snapshot.index), **judged, **SETTINGS, **changes}
    return Deployment.model_validate({"tune": tune})


@pytest.fixture(scope="module")
def exhaustive(index: Index, places: dict[str, str]) -> TuneReport:
    return tune_index(deployment(index, places, search="exhaustive"))


@pytest.mark.parametrize("fusion", ["sum", "rrf"])
def test_values_of_a_candidate_equal_the_public_search(fusion: Any, index: Index, places: dict[str, str]) -> None:
    settings = deployment(index, places, fusion=fusion, qk=6).tune
    assert settings is not None
    judged = read_judged(places["queries"], places["qrels"])
    found = CandidateValues(index, judged, settings)(Candidate(0.4, 2.0))
    hybrid = Hybrid(fusion=fusion, words=2.0)
    run = [
        ir_measures.ScoredDoc(query_id, hit.doc_id, hit.score)
        for query_id, text in judged.queries.items()
        for hit in index.search(text, k=10, hybrid=hybrid, overlap_threshold=0.4, qk=6).hits
    ]
    expected = {one.query_id: one.value for one in ir_measures.iter_calc([ir_measures.RR @ 10], judged.qrels, run)}
    assert found.tolist() == pytest.approx([expected[query_id] for query_id in judged.queries])


def test_refined_choice_is_close_to_the_exhaustive_one(
    exhaustive: TuneReport, index: Index, places: dict[str, str]
) -> None:
    refined = tune_index(deployment(index, places, threads=2))
    assert len(exhaustive.curve) == 2 * (24 + 1 + 1)
    assert len(refined.curve) < len(exhaustive.curve)
    assert exhaustive.value == max(value for _, value in exhaustive.curve)
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
