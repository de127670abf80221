"""Digest of a stage: it covers everything that decides the model, and nothing else."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from lsr_prod.config import Deployment, FinetuneSettings
from lsr_prod.config.language import DistilHeadSettings
from lsr_prod.config.model import AdaptEncoderSettings
from lsr_prod.config.training import STAGES, StageSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.storage import Store
from lsr_prod.storage.folders import save_folder
from lsr_prod.training import chain
from lsr_prod.training.chain import run_chain
from lsr_prod.training.lineage import lineage, read_training
from lsr_prod.training.stages.registry import REGISTRY, errors_of_stage, identity, local_inputs, stage_digest
from lsr_prod.training.stages.stage_facts import TRANSFER_FILE
from tests.model.tiny import tiny_checkpoint

DATA = {"paths": ["a"], "kind": "pairs"}
STAGE: dict[str, Any] = {"data": DATA, "steps": 3, "objective": {"losses": [{"loss": "info_nce"}]}}
VALIDATION = {"corpus": "c", "queries": "q", "qrels": "r"}


def digest(change: dict[str, Any], pins: dict[str, str] | None = None, parent: str = "p") -> str:
    return stage_digest(FinetuneSettings.model_validate({**STAGE, **change}), pins or {"data": "d"}, parent)


@pytest.mark.parametrize(
    "change",
    [
        {"watch": {"every": 3, "tensorboard": "/somewhere", "l0_target": 5}},
        {"checkpoint_every": 3},
        {"data": {**DATA, "paths": ["b", "c"], "format": "parquet", "max_bad_fraction": 0.5}},
        {"batch": {"unique": False}, "objective": {**STAGE["objective"], "mask_false_negatives": True}},
    ],
)
def test_settings_without_influence_on_weights_keep_digest(change: dict[str, Any]) -> None:
    assert digest(change) == digest({})


JOINT = {"regularizer": "joint_flops", "joint": 1.0}


@pytest.mark.parametrize(
    ("before", "added", "changed"),
    [
        ({}, {"estimator": "all_pairs"}, {"estimator": "off_diagonal"}),
        ({"pruning": {"weight": 2.0}}, {"gradient": "hard"}, {"gradient": "straight_through"}),
        ({"pruning": {"weight": 2.0, "gradient": "straight_through"}}, {"candidates": 4}, {"candidates": 5}),
    ],
)
def test_settings_keep_digest_at_their_defaults_only(
    before: dict[str, Any], added: dict[str, Any], changed: dict[str, Any]
) -> None:
    losses = {"losses": [{"loss": "n_pair"}]}

    def with_fields(fields: dict[str, Any]) -> dict[str, Any]:
        if "pruning" in before:
            return {"objective": losses | {"pruning": before["pruning"] | fields}}
        return {"objective": losses | {"sparsity": {"regularizers": [JOINT | fields]}}}

    assert digest(with_fields({})) == digest(with_fields(added)) != digest(with_fields(changed))


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"steps": 4},
        {"dropout": 0.1},
        {"query_max_length": 9},
        {"card_query_max_length": 9},
        {"card_document_max_length": 9},
        {"data": {**DATA, "columns": {"query": "q"}}},
        {"batch": {"queries": 8}},
        {"batch": {"unique": True}},
        {"objective": {**STAGE["objective"], "mask_false_negatives": False}},
        {"optimizer": {"betas": [0.9, 0.99]}},
        {"scale": {"precision": "bf16"}},
        {"objective": {"losses": [{"loss": "info_nce"}], "overlap": {}}},
        {"validation": VALIDATION},
    ],
)
def test_settings_with_influence_on_weights_change_digest(change: dict[str, Any]) -> None:
    assert digest(change) != digest({})


def test_inputs_and_start_model_change_digest() -> None:
    assert len({digest({}), digest({}, {"data": "e"}), digest({}, {"data": "d", "validation": "v"})}) == 3
    assert digest({}, parent="q") != digest({})


def test_validation_changes_digest_by_content_not_by_path() -> None:
    moved = {**VALIDATION, "corpus": "elsewhere"}
    assert digest({"validation": moved}) == digest({"validation": VALIDATION})
    assert digest({"validation": {**VALIDATION, "every": 7}}) != digest({"validation": VALIDATION})


def test_early_stopping_changes_digest() -> None:
    stopping = {**VALIDATION, "stop_after": 3}
    assert digest({"validation": stopping}) != digest({"validation": VALIDATION})
    assert digest({"validation": {**stopping, "min_delta": 0.1}}) != digest({"validation": stopping})


def test_identity_contains_no_path() -> None:
    settings = {**STAGE, "validation": VALIDATION, "watch": {"mlflow": "http://user:secret@there"}}
    found = identity(FinetuneSettings.model_validate(settings))
    assert "watch" not in found
    assert "paths" not in found["data"]
    assert not set(VALIDATION) & set(found["validation"])


TEXTS = {"paths": ["a"], "kind": "texts"}
KINDS: dict[str, dict[str, Any]] = {
    "finetune": {**STAGE, "validation": VALIDATION},
    "adapt_mlm": {"data": TEXTS, "steps": 3, "reference": "a", "validation": {"data": TEXTS}},
    "pretrain_emlm": {"data": TEXTS, "steps": 3},
    "adapt_causal": {"data": TEXTS, "steps": 3},
    "distil_head": {"data": TEXTS, "steps": 3, "teacher": "a"},
    "transfer_vocabulary": {"target": "a", "target_embeddings": "a", "initialization": "semantic", "unigrams": TEXTS},
    "expand_vocabulary": {"data": TEXTS},
    "calibrate": {"data": TEXTS, "activation_rate": 0.3},
    "rescale_head": {"data": DATA, "alpha": "auto"},
    "set_encoder": {"casing": "lowercase", "query_prompt": "a"},
}


def settings_of(kind: str, place: str) -> StageSettings:
    text = json.dumps({"stage": kind, **KINDS[kind]}).replace('"a"', json.dumps(place))
    settings: Any = STAGES[kind].model_validate_json(text)
    return settings


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"set_encoder"}))  # it reads nothing
def test_paths_are_in_no_digest_and_no_identity(kind: str) -> None:
    here, there = settings_of(kind, "/some/where"), settings_of(kind, "/else/where")
    assert stage_digest(here, {}, "p") == stage_digest(there, {}, "p")
    assert "where" not in json.dumps(identity(here))
    assert identity(here)["stage"] == kind


def test_every_kind_is_registered_and_has_its_own_digest() -> None:
    assert set(KINDS) == set(STAGES) == set(REGISTRY)
    assert len({stage_digest(settings_of(kind, "a"), {}, "p") for kind in KINDS}) == len(KINDS)


def test_validation_on_texts_keeps_identity() -> None:
    plain = {key: value for key, value in KINDS["adapt_mlm"].items() if key != "validation"}
    bare = STAGES["adapt_mlm"].model_validate({"stage": "adapt_mlm", **plain})
    assert identity(bare) == identity(settings_of("adapt_mlm", "a"))  # type: ignore[arg-type]


def test_transformations_are_skipped_and_recorded_like_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "ray_for", lambda train, _: nullcontext(train))
    plain = SparseEncoder.load(tiny_checkpoint(tmp_path / "plain", "bert"))
    plain.save(tmp_path / "start")
    (tmp_path / "start" / TRANSFER_FILE).write_text('{"new": [5]}')
    stages: list[dict[str, Any]] = [
        {"stage": "rescale_head", "alpha": 2},
        {"stage": "calibrate", "shift": 1.5},
        {"stage": "set_encoder", "activation": "l0"},
    ]
    train = {"model": str(tmp_path / "start"), "work": str(tmp_path / "work"), "output": str(tmp_path / "out")}
    deployment = Deployment.model_validate({"train": {**train, "stages": stages}})
    summary = run_chain(deployment)
    weight, bias = output_layer(SparseEncoder.load(tmp_path / "out").model)
    old_weight, old_bias = output_layer(plain.model)
    assert bias is not None
    assert old_bias is not None
    torch.testing.assert_close(weight, old_weight / 2)
    torch.testing.assert_close(bias, old_bias - 1.5)
    assert [row["kind"] for row in summary["stage_rows"]] == ["rescale_head", "calibrate", "set_encoder"]
    assert json.loads((tmp_path / "out" / TRANSFER_FILE).read_text()) == {"new": [5]}
    training = read_training(tmp_path / "out")
    assert training is not None
    assert training["settings"]["activation"] == "l0"
    found = lineage(tmp_path / "out", Store(str(tmp_path / "work")))
    assert [one.training and one.training["stage"] for one in found[:4]] == [
        *("set_encoder", "calibrate", "rescale_head", None)
    ]
    again = run_chain(deployment)
    assert (again["stages_skipped"], again["model_digest"]) == (3, summary["model_digest"])
    changed = [stages[0], {"stage": "calibrate", "shift": 2.0}, stages[2]]
    other = {**train, "output": str(tmp_path / "other"), "stages": changed}
    assert run_chain(Deployment.model_validate({"train": other}))["stages_skipped"] == 1


def test_stage_is_checked_against_facts_after_earlier_stages(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "w1 w3"}\n' * 40)
    data = {"paths": [str(tmp_path / "texts.jsonl")], "kind": "texts"}
    start = tiny_checkpoint(tmp_path / "start", "bert")
    train = {"model": str(start), "work": str(tmp_path / "work"), "output": str(tmp_path / "out")}
    emlm = {"stage": "pretrain_emlm", "data": data, "steps": 1}
    mlm = {"stage": "adapt_mlm", "data": data, "steps": 1, "new_token_weight": 1}
    expand = {"stage": "expand_vocabulary", "data": data}
    for stages, field in (
        ([emlm], "train.stages.0.stage"),
        ([expand, mlm], "train.stages.1.stage"),
        ([mlm, expand, emlm, expand], "train.stages.3.stage"),
    ):
        with pytest.raises(ConfigError) as caught:
            run_chain(Deployment.model_validate({"train": {**train, "stages": stages}}))
        assert caught.value.field == field
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("data.paths", "train.stages.3.data.paths"),
        ("train.stages.scale.lora.targets", "train.stages.3.scale.lora.targets"),
        ("train.workers", "train.workers"),
    ],
)
def test_errors_contain_number_of_stage(said: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught, errors_of_stage(3):
        raise ConfigError(said, "it is wrong", "fix it")
    assert (caught.value.field, caught.value.problem, caught.value.remedy) == (field, "it is wrong", "fix it")


def test_folders_by_uri_are_fetched_and_keep_the_digest(
    tmp_path: Path, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSR_PROD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "tokenizer.json").write_text("{}")
    place = f"s3://lsr/{tmp_path.name}/teacher"
    save_folder(tmp_path / "teacher", place, s3_options)
    stage = AdaptEncoderSettings(stage="set_encoder", activation="l0")
    assert local_inputs(stage, s3_options) is stage
    values = {"stage": "distil_head", "data": {"paths": ["x"], "kind": "texts"}, "steps": 1}
    remote = DistilHeadSettings.model_validate({**values, "teacher": place})
    fetched = local_inputs(remote, s3_options)
    assert isinstance(fetched, DistilHeadSettings)
    assert (Path(fetched.teacher) / "tokenizer.json").read_text() == "{}"
    assert identity(fetched) == identity(remote)
    with pytest.raises(ConfigError, match=r"teacher: .* has no none"):
        local_inputs(remote.model_copy(update={"teacher": f"{place[:-7]}none"}), s3_options)


def _sets(*sets: dict[str, object], **changes: object) -> FinetuneSettings:
    objective = {"losses": [{"loss": "info_nce"}]}
    return FinetuneSettings.model_validate({"data": list(sets), "steps": 2, "objective": objective} | changes)


def test_digest_of_several_data_sets_covers_weights_and_no_paths_or_names() -> None:
    one = {"paths": ["a"], "kind": "pairs", "name": "a"}
    other = {"paths": ["b"], "kind": "pairs", "name": "b"}
    digest = stage_digest(_sets(one, other), {}, "0")
    assert (
        stage_digest(_sets(one | {"paths": ["c"], "name": "c"}, other | {"max_bad_fraction": 0.5}), {}, "0") == digest
    )
    assert stage_digest(_sets(one, other | {"weight": 2}), {}, "0") != digest
    assert stage_digest(_sets(one, other, sampling="round_robin"), {}, "0") != digest
