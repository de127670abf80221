import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lsr_prod.config import Deployment, load_deployment
from lsr_prod_contrib.sweeps.patches import write_report
from lsr_prod_contrib.sweeps.plan import Point
from lsr_prod_contrib.sweeps.report import SweepReport, make_report
from tests.contrib.sweeps.points import by_threshold

ROWS = {"one": [[0.9, 0.8], [0.85, 0.84], [0.1, 0.2]], "two": [[0.5, 0.6], [0.55, 0.5], [0.1, 0.2]]}
PLACES = {"corpus": "c.jsonl", "queries": "q.jsonl", "qrels": "q.tsv"}
SWEEP = {
    "models": [{"name": "m", "bundle": "models/m"}], "collections": [{"name": name, **PLACES} for name in ROWS],
    "measures": ["RR@10"], "within": 0.05, "output": "out",
}  # fmt: skip
INDEX = {"table": "t", "bundle": "old", "output": "i", "shards": 3}


def report(sections: dict[str, Any], points: list[Point] | None = None) -> SweepReport:
    return make_report(
        points or by_threshold(ROWS, [3.0, 2.0, 1.0]),
        Deployment.model_validate({"sweep": SWEEP, **sections}),
        bundles={"m": "models/m"},
        queries={name: ["q1", "q2"] for name in ROWS},
        documents=dict.fromkeys(ROWS, 10),
    )


def test_result_is_json_with_fronts_and_choice() -> None:
    result = json.loads(json.dumps(report({}).result()))
    assert result["measure"] == "RR@10"
    assert result["costs"] == ["flops", "match_p50_ms", "bytes"]
    assert result["fronts"]["two"] == {cost: [5, 4, 3] for cost in result["costs"]}
    assert result["chosen"]["point"] == 1
    assert result["chosen"]["points"] == {"one": 1, "two": 4}
    assert result["points"][4]["collection"] == "two"
    assert result["points"][4]["by_query"] == {"RR@10": [0.55, 0.5]}


def test_patch_changes_sections_that_the_deployment_has() -> None:
    changes = {
        "encode": {"bundle": "models/m"}, "index": {"bundle": "models/m", "dk": None},
        "evaluate": {"qk": None, "thresholds": [0.1]},
    }  # fmt: skip
    assert report({}).patch == changes
    assert report({"index": INDEX}).patch == {"index": changes["index"]}


def test_written_patch_loads_on_top_of_a_deployment(tmp_path: Path) -> None:
    result = report({"index": INDEX}).result()
    write_report(str(tmp_path / "out"), "sweep.json", result, result["chosen"], {})
    (tmp_path / "deployment.yaml").write_text(yaml.safe_dump({"index": {**INDEX, "dk": 7}}))
    files = [str(tmp_path / "deployment.yaml"), str(tmp_path / "out" / "patch.yaml")]
    argv = ["--config", files[0], "--config", files[1], "--index.shards", "5"]
    index = load_deployment(argv, job="index", description="", needs=("index",)).index
    assert index is not None
    assert (index.bundle, index.dk, index.table, index.shards) == ("models/m", None, "t", 5)
    first = (tmp_path / "out" / "patch.yaml").read_text().splitlines()[0]
    assert first == f"# {report({}).sentence}"
    assert json.loads((tmp_path / "out" / "sweep.json").read_text())["measure"] == "RR@10"


def test_hybrid_choice_asks_for_words_in_the_index() -> None:
    points = [replace(one, setting=replace(one.setting, hybrid_weight=2.0)) for one in by_threshold(ROWS, [3, 2, 1])]
    found = report({"index": INDEX}, points)
    assert found.patch["index"]["bm25"] is True
    assert found.search == {"qk": None, "overlap_threshold": 0.1, "hybrid": {"fusion": "sum", "words": 2.0}}


@pytest.mark.parametrize("cost", ["match_p50_ms", "bytes"])
def test_other_costs_can_decide(cost: str) -> None:
    assert report({"sweep": {**SWEEP, "cost": cost}}).choice.points["one"] == 1
