"""Chains of stages and their reports, from the records in a work store."""

from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.storage import Store
from lsr_prod_contrib.pages.runs.training import describe_training
from tests.contrib.pages.runs.records import training_records


def test_stages_are_in_the_order_of_the_chain_and_an_unfinished_one_is_last(tmp_path: Path):
    work, stages = training_records(tmp_path)
    found = describe_training(work)
    assert [stage["stage"] for stage in found["stages"]] == stages
    assert [stage["kind"] for stage in found["stages"]] == ["rescale_head", "finetune", None]
    assert found["stages"][1]["figures"]["loss"] == 1.5
    assert [len(stage["reports"]) for stage in found["stages"]] == [0, 20, 20]  # without the truncated line


def test_chain_of_a_model_ends_with_its_stage(tmp_path: Path):
    work, stages = training_records(tmp_path)
    assert [stage["stage"] for stage in describe_training(work, "b" * 12)["stages"]] == stages[:1]
    assert [stage["stage"] for stage in describe_training(work, "c" * 64)["stages"]] == stages[:2]


def test_reports_of_a_remote_run_are_those_of_its_newest_checkpoint(tmp_path: Path, s3_options: dict[str, str]):
    work, _stages = training_records(tmp_path)
    remote = Store("s3://lsr/training-runs", s3_options)
    for name in work.names():
        place = name.replace("steps.jsonl", "checkpoint_1/steps.jsonl")
        remote.put_new(place, work.get(name) or b"")
    found = describe_training(remote, "c" * 64)
    assert found["stages"][1]["reports"] == describe_training(work, "c" * 64)["stages"][1]["reports"]


@pytest.mark.parametrize(("model", "words"), [("d" * 12, "no stage of"), ("b", "no stage of")])
def test_model_that_no_stage_made_is_refused(tmp_path: Path, model: str, words: str):
    with pytest.raises(ConfigError, match=f"--model: {words}"):
        describe_training(training_records(tmp_path)[0], model)


def test_folder_without_stages_is_refused(tmp_path: Path):
    with pytest.raises(ArtifactError, match="has no stages"):
        describe_training(Store(str(tmp_path), {}))


@pytest.mark.parametrize(
    "line",
    ["{broken", "{}", "null", '{"step": 4, "time": 1, "values": null}', '{"step": "x", "time": 1, "values": {}}'],
)
def test_damaged_report_is_named_with_its_line(tmp_path: Path, line: str):
    work, stages = training_records(tmp_path)
    path = tmp_path / "work" / "runs" / stages[1] / "steps.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], line, *lines[2:]]))
    with pytest.raises(ArtifactError, match=rf"line 3 of .*/{stages[1]}/steps\.jsonl is no report"):
        describe_training(work)
