"""Checks of the stages on plain text: a stage that does not fit the model is reported in one line with the field."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.config.training import STAGES, TrainSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.training.stages.registry import REGISTRY
from lsr_prod.training.stages.stage_facts import ModelFacts
from tests.training.texts import causal_start, worded_start, write_texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    worded_start(folder / "words")
    SparseEncoder.load(folder / "plain").save(folder / "masked")
    causal_start(folder / "causal")
    write_texts(folder / "texts.jsonl")
    return folder


def check(
    folder: Path, model: str, kind: str, *, workers: int = 1, facts: dict[str, Any] | None = None, **stage: Any
) -> tuple[dict[str, str], ModelFacts]:
    given = ModelFacts.of(SparseEncoder.load(folder / model))
    data = {"paths": [str(folder / "texts.jsonl")], "kind": "texts"}
    settings: Any = STAGES[kind].model_validate({"stage": kind, "data": data, "steps": 1, **stage})
    train = TrainSettings.model_validate(
        {"model": "x", "work": "x", "output": "x", "stages": [settings], "workers": workers}
    )
    return REGISTRY[kind].check(settings, train, replace(given, **(facts or {})), {})


WRONG: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("causal", "adapt_mlm", {}, "stage", "take adapt_causal"),
    ("words", "adapt_mlm", {}, "stage", "take pretrain_emlm"),
    ("masked", "adapt_mlm", {"facts": {"roles": frozenset()}}, "stage", "no mask token"),
    ("masked", "adapt_mlm", {}, "new_token_weight", "set it to 1"),
    ("masked", "adapt_mlm", {"reference": "/nowhere"}, "reference", "name that of the old vocabulary"),
    ("masked", "pretrain_emlm", {}, "stage", "put expand_vocabulary before"),
    ("causal", "pretrain_emlm", {}, "stage", "take adapt_causal"),
    ("masked", "adapt_causal", {}, "stage", "take adapt_mlm"),
    ("causal", "adapt_causal", {"facts": {"roles": frozenset()}}, "stage", "the tokenizer has none"),
    ("causal", "adapt_causal", {"facts": {"output_vocabulary": "words"}}, "stage", "put it before"),
    ("causal", "adapt_causal", {"max_length": 500}, "max_length", "give 2 to 72 tokens"),
    ("causal", "adapt_causal", {"workers": 40}, "train.workers", "give each at least one text"),
    ("causal", "adapt_causal", {"trained": "head"}, "trained", "replace the output vocabulary"),
    ("masked", "distil_head", {"teacher": "MASKED"}, "trained", "replace the output vocabulary"),
    ("words", "distil_head", {"teacher": "MASKED"}, "teacher", "the same output vocabulary"),
    ("words", "distil_head", {"teacher": "/nowhere"}, "teacher", "name a model directory"),
    ("words", "pretrain_emlm", {"data": {"paths": ["/nowhere"], "kind": "texts"}}, "data.paths", "/nowhere"),
    (
        "words",
        "pretrain_emlm",
        {"validation": {"data": {"paths": ["/no"], "kind": "texts"}}},
        "validation.data.paths",
        "/no",
    ),
    ("words", "pretrain_emlm", {"scale": {"lora": {"targets": ["q"]}}}, "train.stages.scale.lora.targets", "has dense"),
]


@pytest.mark.parametrize(("model", "kind", "changes", "field", "words"), WRONG)
def test_stage_that_does_not_fit_model_is_reported_in_one_line(
    folder: Path, model: str, kind: str, changes: dict[str, Any], field: str, words: str
) -> None:
    changes = {name: str(folder / "masked") if value == "MASKED" else value for name, value in changes.items()}
    with pytest.raises(ConfigError) as caught:
        check(folder, model, kind, **changes)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_inputs_are_pinned(folder: Path) -> None:
    pins, facts = check(folder, "masked", "adapt_mlm", facts={"transferred": True})
    assert sorted(pins) == ["data"]
    assert facts.transferred
    pins, _ = check(folder, "masked", "adapt_mlm", reference=str(folder / "causal"))
    assert sorted(pins) == ["data", "reference"]
    pins, _ = check(folder, "masked", "distil_head", teacher=str(folder / "masked"), trained="all")
    assert pins["teacher"] == model_digest(folder / "masked")
    # Output terms that are only known after an earlier stage has run are compared by their number.
    check(folder, "words", "distil_head", teacher=str(folder / "words"), facts={"vocabulary_sha256": None})
