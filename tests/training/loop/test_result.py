"""Figures of a summary that come from the reports of a run."""

import json
from pathlib import Path
from typing import Any

import pytest
import ray.train

from lsr_prod.config.language import AdaptCausalSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.loop.checkpoint import Checkpoint, write_checkpoint
from lsr_prod.training.loop.result import is_start_better, save_result, start_and_best
from lsr_prod.training.loop.worker_job import load_start
from tests.training.small import small_start, weights_of

TEXTS = {"paths": ["x"], "kind": "texts"}
LANGUAGE: dict[str, Any] = {"stage": "adapt_causal", "data": TEXTS, "steps": 4, "validation": {"data": TEXTS}}
PAIRS: dict[str, Any] = {
    "data": {"paths": ["x"], "kind": "pairs"},
    "steps": 4,
    "objective": {"losses": [{"loss": "info_nce"}]},
    "validation": {"corpus": "c", "queries": "q", "qrels": "r", "measures": ["RR@10", "R@10"]},
}


def _log(folder: Path, reports: dict[int, dict[str, Any]]) -> Path:
    lines = [json.dumps({"step": step, "time": 0.0, "values": values}) + "\n" for step, values in reports.items()]
    (folder / "steps.jsonl").write_text("".join(lines))
    return folder / "steps.jsonl"


def test_start_and_best_are_those_of_the_watched_measure(tmp_path: Path) -> None:
    measured = {0: (0.4, 0.2), 2: (0.3, 0.5), 4: (0.1, 0.5)}
    path = _log(
        tmp_path,
        {0: {}, 1: {"loss": 1.0}}
        | {step: {"validation/RR@10": first, "validation/R@10": second} for step, (first, second) in measured.items()},
    )
    first = FinetuneSettings.model_validate(PAIRS)
    assert start_and_best(path, first) == {"start": 0.4, "best": 0.4, "best_step": 0}
    kept = FinetuneSettings.model_validate({**PAIRS, "validation": {**PAIRS["validation"], "keep_best": "R@10"}})
    assert start_and_best(path, kept) == {"start": 0.2, "best": 0.5, "best_step": 2}, "the first of equal values"


def test_best_loss_of_a_language_model_is_the_lowest(tmp_path: Path) -> None:
    reports = {
        step: {"validation/next_token": loss, "validation/accuracy": accuracy}
        for step, (loss, accuracy) in {0: (9.0, 0.1), 2: (5.0, 0.3), 4: (6.0, 0.4)}.items()
    }
    found = start_and_best(_log(tmp_path, reports), AdaptCausalSettings.model_validate(LANGUAGE))
    assert found == {"start": 9.0, "best": 5.0, "best_step": 2}


def test_run_of_a_release_without_validation_at_the_start_has_no_start(tmp_path: Path) -> None:
    path = _log(tmp_path, {2: {"validation/RR@10": 0.3}, 4: {"validation/RR@10": "nan"}})
    assert start_and_best(path, FinetuneSettings.model_validate(PAIRS)) == {"best": 0.3, "best_step": 2}


def test_stage_without_validation_has_neither(tmp_path: Path) -> None:
    settings = FinetuneSettings.model_validate({**PAIRS, "validation": None})
    assert start_and_best(_log(tmp_path, {1: {"loss": 1.0}}), settings) == {}


def _stage(**validation: Any) -> FinetuneSettings:
    return FinetuneSettings.model_validate({**PAIRS, "validation": {**PAIRS["validation"], **validation}})


def _measured(folder: Path, *values: tuple[Any, Any]) -> Path:
    """Write reports with RR@10 and FLOPS of validations from step 0 on, every second step."""
    reports = ({"validation/RR@10": measure, "validation/flops": flops} for measure, flops in values)
    return _log(folder, {2 * number: report for number, report in enumerate(reports)})


@pytest.mark.parametrize(
    ("values", "better"),
    [
        (((0.4, 2.0), (0.5, 2.0), (0.3, 2.0)), True),
        (((0.4, 2.0), (0.3, 2.5)), True),
        (((0.4, 2.0), (0.4, 2.0)), False),
        (((0.4, 2.0), (0.3, 1.9)), False),  # training made the vectors sparser
        (((0.4, 2.0), (0.5, 9.0)), False),
        (((0.4, "inf"), (0.3, 2.0)), False),
        (((0.4, 2.0),), False),
    ],
)
def test_start_is_better_with_a_higher_measure_and_no_more_flops(
    tmp_path: Path, values: tuple[tuple[Any, Any], ...], better: bool
) -> None:
    path = _measured(tmp_path, *values)
    assert is_start_better(path, _stage()) is better
    assert not is_start_better(path, _stage(keep_best="last"))
    assert not is_start_better(path, _stage(keep_best="RR@10"))  # its best weights are in the checkpoint
    assert not is_start_better(path, FinetuneSettings.model_validate({**PAIRS, "validation": None}))


@pytest.mark.parametrize(
    ("validation", "last", "kept"),
    [
        ({}, 0.3, "start"),
        ({}, 0.5, "last"),
        ({"keep_best": "last"}, 0.3, "last"),
        ({"keep_best": "RR@10"}, 0.3, "start"),
        ({"keep_best": "RR@10"}, 0.5, "last"),
    ],
)
def test_untrained_weights_are_kept_with_a_note_if_training_did_not_help(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, validation: dict[str, Any], last: float, kept: str
) -> None:
    start, stage = small_start(tmp_path / "start"), _stage(**validation)
    before = SparseEncoder.load(start).model.state_dict()
    after = {name: value + 1 for name, value in before.items() if value.is_floating_point() and "decoder" not in name}
    tensors = {"weights": after}
    best = {"step": None, "value": None, "reference": 0.4, "without_improvement": 0}
    if stage.validation is not None and stage.validation.keeps_best:
        untrained = {name: before[name] for name in after}
        tensors["best"] = untrained if last < 0.4 else after
        best |= {"step": 0 if last < 0.4 else 4, "value": max(last, 0.4)}
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    _measured(folder, (0.4, 2.0), (last, 2.0))
    write_checkpoint(folder, Checkpoint(4, tensors, {"best": best}), name="n")
    checkpoint = ray.train.Checkpoint.from_directory(str(folder))
    row = save_result(load_start(start, stage), checkpoint, stage, "n", tmp_path / "out")
    assert (weights_of(tmp_path / "out") == weights_of(start)) is (kept == "start")
    note = (
        "training did not help: the untrained weights were kept (RR@10 was 0.4000 before, 0.3000 after the last step)"
    )
    assert row.get("note") == (note if kept == "start" else None)
    assert (note in caplog.text) is (kept == "start")
