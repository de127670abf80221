from pathlib import Path

import ir_measures
import numpy as np
import pytest

from benchmarks.train.pruning_models import (
    FLOPS,
    HARD,
    LEVELS,
    NONE,
    STRAIGHT_THROUGH,
    THRESHOLD,
    THRESHOLDS,
    Recipe,
    Workshop,
)
from lsr_prod.evaluation.validation import Collection
from lsr_prod.model import model_digest

TEXTS = ["list files", "remove a folder", "copy over a network", "show a calendar", "edit text", "compile a program"]
PAIRS = [(f"how to {text}", f"tool {number}: {text}") for number, text in enumerate(TEXTS)]
COLLECTION = Collection(
    {f"d{number}": text for number, text in enumerate(TEXTS)},
    {"q0": "listing of files", "q1": "text editor"},
    [ir_measures.Qrel("q0", "d0", 1), ir_measures.Qrel("q1", "d4", 1)],
)


def test_models_differ_in_objective_only() -> None:
    objectives = Recipe().objectives()

    assert [len(one.sparsity.regularizers) for one in objectives.values()] == [1] * 5
    gradients = {name: one.pruning.gradient if one.pruning else None for name, one in objectives.items()}
    assert gradients == {NONE: None, HARD: "hard", STRAIGHT_THROUGH: "straight_through", FLOPS: None, THRESHOLD: "hard"}
    assert [name for name, one in objectives.items() if one.overlap is not None] == [THRESHOLD]
    assert len({one.model_dump_json(include={"losses"}) for one in objectives.values()}) == 1


@pytest.fixture(scope="module")
def workshop(tiny_model: Path, ray_local: None, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("work"), tiny_model, PAIRS)


@pytest.mark.long
def test_a_trained_model_is_kept(workshop: Workshop) -> None:
    recipe = Recipe(steps=1, queries=4)
    objectives = recipe.objectives()
    stage = recipe.stage(objectives[THRESHOLD], workshop.data, seed=0)

    first = workshop.trained(stage)
    written = (first / "model.safetensors").stat().st_mtime_ns

    assert workshop.trained(stage) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    assert model_digest(first) != model_digest(workshop.start)
    assert workshop.trained(recipe.stage(objectives[NONE], workshop.data, seed=0)) != first


@pytest.mark.long
def test_a_measurement_is_kept(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    first = workshop.measured(workshop.start, COLLECTION)
    monkeypatch.setattr("benchmarks.train.pruning_models.measure", None)  # not to be called again
    again = workshop.measured(workshop.start, COLLECTION)

    assert [(report.qk, report.dk, report.threshold) for report in first] == [
        (*level, threshold) for level in LEVELS for threshold in THRESHOLDS
    ]
    assert [report.measures for report in again] == [report.measures for report in first]
    np.testing.assert_array_equal(again[0].by_query["RR@10"], first[0].by_query["RR@10"])
    assert first[0].measures["RR@10"] == 1.0
