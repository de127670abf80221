"""The loss on held-out texts: always of the same masks, and of words in three sets."""

from typing import Any

import pytest
import torch

from lsr_prod.config.language import PretrainEmlmSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import head_input, hidden_states, output_layer
from lsr_prod.training.language.trainer import LanguageValidator
from tests.training.language.test_trainer import Rows
from tests.training.texts import worded_start


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SparseEncoder:
    return SparseEncoder.load(worded_start(tmp_path_factory.mktemp("words") / "m"))


def validator(encoder: SparseEncoder, **validation: Any) -> LanguageValidator:
    data = {"paths": ["x"], "kind": "texts"}
    stage = PretrainEmlmSettings.model_validate(
        {"stage": "pretrain_emlm", "data": data, "steps": 1, "validation": {"data": data, **validation}}
    )
    return LanguageValidator(stage, Rows(40), encoder)  # type: ignore[arg-type]


def test_validation_reports_three_sets_with_repeatable_results(encoder: SparseEncoder) -> None:
    judge = validator(encoder)
    encoder.train()
    found = judge(encoder)
    assert encoder.training
    names = [f"{prefix}{name}" for prefix in ("", "firstword/", "subword/") for name in ("masked_words", "accuracy")]
    assert list(found) == names
    assert judge(encoder) == found
    assert len({found[name] for name in names[::2]}) == 3
    assert validator(encoder, texts=10)(encoder)["masked_words"] != found["masked_words"]


def test_validation_set_masks_sub_tokens_by_its_name(encoder: SparseEncoder) -> None:
    judge, rows = validator(encoder), Rows(40)
    mask = encoder.tokenizer.mask_token_id
    for prefix, offset in (("firstword/", 0), ("subword/", 1)):
        objective = judge._sets[prefix]
        batch = objective.batch(rows.examples(judge._rows[:1]), judge._rows[:1], -1)
        (place,), (label,) = batch.inputs[2].tolist(), batch.inputs[3].tolist()
        spans = rows.examples(judge._rows[:1])[0].documents[1].reshape(-1, 3).tolist()
        assert [place - offset, place - offset + 2, label] in spans
        assert (batch.inputs[0] == mask).nonzero().tolist() == [[0, place]]


@torch.no_grad()
def test_validation_averages_over_all_predictions(encoder: SparseEncoder) -> None:
    judge = validator(encoder, texts=7)
    total, count = 0.0, 0
    for row in judge._rows:
        batch = judge._sets[""].batch(Rows(40).examples([row]), judge._rows[judge._rows == row], -1)  # type: ignore[arg-type]
        ids, mask, places, labels = batch.inputs
        states = head_input(encoder.eval().model, hidden_states(encoder.model, ids, mask).flatten(0, 1)[places])
        weight, bias = output_layer(encoder.model)
        total += float(torch.nn.functional.cross_entropy(states @ weight.T + bias, labels, reduction="sum"))
        count += len(labels)
    assert judge(encoder)["masked_words"] == pytest.approx(total / count, rel=1e-5)
