"""Dry run of a chain: what a run would do, without writing anything."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lsr_prod.config import Deployment
from lsr_prod.jobs.training import train
from lsr_prod.training import chain
from lsr_prod.training.chain import run_chain
from lsr_prod_contrib.estimates import training
from lsr_prod_contrib.estimates.training import describe_chain
from tests.training.small import small_start, small_training
from tests.training.stand_in import train_a_little
from tests.training.test_chain import files_below

Settings = dict[str, Any]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Two stages on 42 good rows, of which the second one changes nothing but the card; and three bad rows."""
    settings = small_training(tmp_path, small_start(tmp_path / "bert"))
    stages = settings["train"]["stages"]
    with (tmp_path / "rows.jsonl").open("a") as file:
        for row in ({"positive": "w1"}, {"query": "w1", "negatives": ["w2"]}, {"query": "w1", "positive": "w2"}):
            file.write(json.dumps(row) + "\n")
    del stages[0]["steps"]
    stages[0] |= {"epochs": 3}
    stages[0]["data"]["max_bad_fraction"] = 0.1
    stages.append({"stage": "set_encoder", "document_max_length": 32})
    return settings


@pytest.mark.parametrize("rate", [1e-3, "auto"])
def test_dry_run_says_what_a_run_would_do_and_writes_nothing(
    settings: Settings, tmp_path: Path, rate: float | str
) -> None:
    settings["train"]["stages"][0]["optimizer"] = {"learning_rate": rate}
    before, threads = files_below(tmp_path), torch.get_num_threads()
    found = describe_chain(Deployment.model_validate(settings))
    assert files_below(tmp_path) == before
    assert torch.get_num_threads() == threads
    first, second = found["stage_rows"]
    assert (first["done"], first["rows"], first["steps"]) == ("to do", 42, 3 * (42 // 8))
    assert first["quarantined"] == {
        "missing_field: negatives": 1,
        "missing_field: positive": 1,
        "missing_field: query": 1,
    }
    assert 0 < first["hours"] < 1
    assert 10_000_000 < first["memory_bytes"] < 10**11
    assert first["note"] == "measured with 8 queries per step on this machine (1 thread), model: that of the stage"
    assert (second["done"], second["steps"], second["hours"]) == ("to do", None, 0.0)
    assert found["hours"] == first["hours"]


@pytest.mark.parametrize(("rate", "steps"), [(1e-3, 15), ("auto", 15 + 48)])
def test_hours_include_the_trial_of_a_learning_rate(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, rate: float | str, steps: int
) -> None:
    settings["train"]["stages"][0]["optimizer"] = {"learning_rate": rate}
    monkeypatch.setattr(training, "_time", lambda *_: (training.StepCost(3600.0, 1, 8, 1), "model"))
    assert describe_chain(Deployment.model_validate(settings))["hours"] == steps


def test_dry_run_says_that_too_many_rows_are_bad(settings: Settings) -> None:
    settings["train"]["stages"][0]["data"]["max_bad_fraction"] = 0.01
    found = describe_chain(Deployment.model_validate(settings))
    assert found["stage_rows"][0]["note"].startswith("fails: too many bad rows")
    assert (found["stage_rows"][0]["hours"], found["hours"]) == (None, None)


def test_dry_run_names_finished_stages(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import nullcontext

    stage = settings["train"]["stages"][0]
    settings["train"]["stages"] = [{**stage, "steps": 2, "epochs": None}]
    monkeypatch.setattr(chain, "ray_for", lambda train, _: nullcontext(train))
    monkeypatch.setattr(chain, "run_stage", train_a_little)
    run_chain(Deployment.model_validate(settings))
    settings["train"]["stages"].append({**stage, "seed": 3})
    settings["train"]["output"] = str(tmp_path / "more")
    found = describe_chain(Deployment.model_validate(settings))
    assert [row["done"] for row in found["stage_rows"]] == ["before", "to do"]
    assert (found["stages_finished"], found["hours"]) == (1, found["stage_rows"][1]["hours"])
    assert found["stage_rows"][1]["note"].endswith("model: that of the stage")


def test_command_prints_tables_and_result(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deployment.yaml").write_text(json.dumps(settings))
    assert train.run(["--config", str(tmp_path / "deployment.yaml"), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "rows that would be quarantined" in out
    (line,) = [line for line in out.splitlines() if line.startswith("RESULT ")]
    assert json.loads(line.removeprefix("RESULT "))["stages"] == 2
    assert not (tmp_path / "work").exists()
