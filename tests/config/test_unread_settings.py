"""Settings that nothing reads next to the others are refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from lsr_prod.config import language, model, objective
from lsr_prod.config.section import Section
from lsr_prod.config.training import ValidationSettings

FLOPS: dict[str, Any] = {"regularizer": "flops", "document": 1.0}
COSINE: dict[str, Any] = {"loss": "info_nce", "similarity": "cosine"}
KL: dict[str, Any] = {"losses": [{"loss": "kl"}]}
ALONE: dict[str, Any] = {"losses": [{"loss": "info_nce", "in_batch": False}, {"loss": "kl"}]}
LOSS, REGULARIZER, PRUNING = objective.LossSettings, objective.RegularizerSettings, objective.PruningSettings
OBJECTIVE, TRANSFER = objective.ObjectiveSettings, model.TransferVocabularySettings
TEXTS: dict[str, Any] = {"paths": ["texts"], "kind": "texts"}
ROWS: dict[str, Any] = {"stage": "transfer_vocabulary", "target": "t", "initialization": "mean", "bias": "rows"}
SHIFT: dict[str, Any] = {"stage": "calibrate", "shift": 1.0}
RATE: dict[str, Any] = {"shift": None, "activation_rate": 0.3, "data": TEXTS}
RESCALE: dict[str, Any] = {"stage": "rescale_head", "alpha": 2.0}
AUTO: dict[str, Any] = {"alpha": "auto", "data": {"paths": ["pairs"], "kind": "pairs"}}
JUDGED: dict[str, Any] = {"corpus": "c", "queries": "q", "qrels": "j"}


@pytest.mark.parametrize(
    ("section", "settings", "unread", "need", "reads"),
    [
        (LOSS, {"loss": "kl"}, {"margin": 0.1}, "info_nce", {"loss": "info_nce"}),
        (LOSS, {"loss": "kl"}, {"in_batch": False}, "info_nce", {"loss": "info_nce"}),
        (LOSS, {"loss": "margin_mse"}, {"in_batch": False}, "info_nce", {"loss": "info_nce"}),
        (LOSS, {"loss": "n_pair"}, {"in_batch": False}, "info_nce", {"loss": "info_nce"}),
        (LOSS, {"loss": "n_pair"}, {"temperature": 4.0}, "kl, or info_nce with similarity dot", {"loss": "kl"}),
        (LOSS, {"loss": "margin_mse"}, {"temperature": 4.0}, "kl, or info_nce with similarity dot", {"loss": "kl"}),
        (LOSS, COSINE, {"temperature": 4.0}, "kl, or info_nce with similarity dot or both", {"similarity": "both"}),
        (LOSS, COSINE, {"temperature": 4.0}, "kl, or info_nce with similarity dot or both", {"loss": "kl"}),
        (LOSS, {"loss": "info_nce"}, {"cosine_temperature": 0.1}, "similarity cosine or both", COSINE),
        (LOSS, {"loss": "kl"}, {"cosine_temperature": 0.1}, "similarity cosine or both", {"similarity": "both"}),
        (REGULARIZER, {**FLOPS, "regularizer": "cased"}, {"l0_mask": 3}, "flops or l1", FLOPS),
        (REGULARIZER, FLOPS, {"ramp_steps": 3}, "ramp linear or quadratic", {"ramp": "linear"}),
        (REGULARIZER, FLOPS, {"ramp_share": 0.5}, "ramp linear or quadratic", {"ramp": "linear"}),
        (REGULARIZER, FLOPS, {"df_alpha": 0.5}, "df_flops", {"regularizer": "df_flops"}),
        (REGULARIZER, FLOPS, {"df_beta": 0.5}, "df_flops", {"regularizer": "df_flops"}),
        (REGULARIZER, FLOPS, {"df_every": 5}, "df_flops", {"regularizer": "df_flops"}),
        (objective.SparsitySettings, {}, {"keep": "both"}, "keep_query or keep_document", {"keep_document": 5}),
        (PRUNING, {}, {"temperature_start": 1.0}, "gradient straight_through", {"gradient": "straight_through"}),
        (PRUNING, {}, {"temperature_end": 1.0}, "gradient straight_through", {"gradient": "straight_through"}),
        (PRUNING, {}, {"candidates": 5}, "gradient straight_through", {"gradient": "straight_through"}),
        (
            objective.OverlapSettings,
            {"term": "jaccard"},
            {"overlap_threshold": 0.5},
            "term co_occurrence",
            {"term": "co_occurrence"},
        ),
        (OBJECTIVE, ALONE, {"queue": {}}, "info_nce with in_batch", {"losses": [COSINE]}),
        (OBJECTIVE, ALONE, {"cross_worker": False}, "info_nce with in_batch, or n_pair", {"losses": [COSINE]}),
        (OBJECTIVE, KL, {"mask_false_negatives": False}, "info_nce or n_pair", ALONE),
        (
            language.OptimizerSettings,
            {"schedule": "constant"},
            {"schedule_steps": 9},
            "schedule linear or cosine",
            {"schedule": "cosine"},
        ),
        (ValidationSettings, JUDGED, {"min_delta": 0.1}, "stop_after", {"stop_after": 3}),
        (TRANSFER, ROWS, {"target_embeddings": "e"}, "initialization semantic or bias target", {"bias": "target"}),
        (TRANSFER, ROWS, {"unigram_texts": 9}, "bias unigrams", {"bias": "unigrams", "unigrams": TEXTS}),
        (model.CalibrateSettings, SHIFT, {"texts": 9}, "activation_rate", RATE),
        (model.CalibrateSettings, SHIFT, {"max_length": 9}, "activation_rate", RATE),
        (model.RescaleHeadSettings, RESCALE, {"pairs": 9}, "alpha auto", AUTO),
        (model.RescaleHeadSettings, RESCALE, {"max_score": 9.0}, "alpha auto", AUTO),
        (model.RescaleHeadSettings, RESCALE, {"max_weight": 9.0}, "alpha auto", AUTO),
        (language.ScaleSettings, {}, {"kept_layers": 2}, "gradient_checkpointing", {"gradient_checkpointing": True}),
    ],
)
def test_setting_that_nothing_reads_is_refused(
    section: type[Section], settings: dict[str, Any], unread: dict[str, Any], need: str, reads: dict[str, Any]
) -> None:
    (name,) = unread
    line = rf"{name} has no effect without {need}.*; set that, or remove {name} "
    with pytest.raises(ValidationError, match=line):
        section.model_validate({**settings, **unread})
    section.model_validate({**settings, **reads, **unread})
    plain = section.model_validate(settings)
    assert section.model_validate(plain.model_dump()) == plain, "settings with all their defaults can be read back"


def test_joint_flops_alone_has_estimators() -> None:
    with pytest.raises(ValidationError, match="estimator has no effect without joint_flops"):
        REGULARIZER.model_validate({**FLOPS, "estimator": "off_diagonal"})


def test_pruning_level_below_zero_is_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        PRUNING.model_validate({"levels": [[5, -1]]})
