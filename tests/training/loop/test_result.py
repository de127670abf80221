"""Figures of a summary that come from the reports of a run."""

import json
from pathlib import Path
from typing import Any

from lsr_prod.config.language import AdaptCausalSettings
from lsr_prod.config.train import FinetuneSettings
from lsr_prod.training.loop.result import start_and_best

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
