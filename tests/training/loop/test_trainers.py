"""What the worker asks of a loop, whichever of the two it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lsr_prod.config.training import STAGES, FinetuneSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.encoder_setup import prepare_encoder
from lsr_prod.training.language.trainer import LanguageTrainer
from lsr_prod.training.loop.worker_job import LoopInputs, load_start, make_trainer, ramps_end
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer
from tests.model.tiny import tiny_checkpoint
from tests.training.sets import make_set

TEXTS = {"data": {"paths": ["x"], "kind": "texts"}, "steps": 6}
PAIRS = {
    "data": {"paths": ["x"], "kind": "pairs"},
    "batch": {"queries": 2},
    "steps": 6,
    "query_max_length": 9,
    "objective": {
        "losses": [{"loss": "info_nce"}],
        "sparsity": {"regularizers": [{"regularizer": "flops", "query": 1, "ramp": "quadratic", "ramp_steps": 4}]},
    },
}


def mlm(**changes: Any) -> Any:
    return STAGES["adapt_mlm"].model_validate({"stage": "adapt_mlm", **TEXTS, "batch": {"texts": 2}, **changes})


def test_load_start_and_prepare_encoder_apply_stage_settings(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "m", "bert")
    pairs = FinetuneSettings.model_validate(PAIRS)
    assert load_start(folder, pairs).card.query_max_length == 9
    kept = pairs.model_copy(update={"card_query_max_length": 20, "card_document_max_length": 50})
    card = load_start(folder, kept).card
    assert (card.query_max_length, card.document_max_length) == (20, 50)
    texts = load_start(folder, mlm(max_length=5))
    assert (texts.card.query_max_length, texts.card.document_max_length) == (64, 72)
    assert (ramps_end(pairs, 6), ramps_end(mlm(), 6)) == (4, 0)
    prepare_encoder(texts, mlm(dropout=0.25))
    assert sum(parameter.requires_grad for parameter in texts.model.parameters()) == 2
    assert {module.p for module in texts.model.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}


@pytest.mark.parametrize(("kind", "loop"), [("pairs", Trainer), ("texts", LanguageTrainer)])
def test_make_trainer_returns_trainer_of_stage(tmp_path: Path, kind: str, loop: type) -> None:
    rows = {"pairs": [{"query": "abc", "positive": "xyz"}], "texts": [{"text": "abc"}]}
    store, digest = make_set(tmp_path, kind, [rows[kind] * 4])
    stage = FinetuneSettings.model_validate(PAIRS) if kind == "pairs" else mlm(mask_rate=0.9)
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "m", "bert"))
    trainer = make_trainer(stage, encoder, store, LoopInputs(digest), Group(0, 1, torch.device("cpu")))
    assert type(trainer) is loop
    result = trainer.train_step()
    values = {**result.losses, **result.figures(), **trainer.figures()}
    assert all(value is None or np.isfinite(value) for value in values.values())
    assert (trainer.step, trainer.steps, trainer.sharded) == (1, 6, False)
