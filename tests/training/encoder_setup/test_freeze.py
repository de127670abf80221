"""Which weights are trained."""

from pathlib import Path

import pytest

from lsr_prod.model import SparseEncoder
from lsr_prod.training.encoder_setup import freeze
from tests.model.tiny import tiny_checkpoint


@pytest.mark.parametrize(
    ("architecture", "trained", "names"),
    [
        ("bert", "embeddings", {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias"}),
        ("modernbert", "embeddings", {"model.embeddings.tok_embeddings.weight", "decoder.bias"}),
        ("distilbert", "embeddings", {"distilbert.embeddings.word_embeddings.weight", "vocab_projector.bias"}),
        ("llama", "embeddings", {"model.embed_tokens.weight"}),
        ("qwen3", "embeddings", {"model.embed_tokens.weight", "lm_head.weight"}),
        ("qwen3", "head", {"lm_head.weight"}),
    ],
)
def test_freeze_leaves_only_selected_weights_trained(
    tmp_path: Path, architecture: str, trained: str, names: set[str]
) -> None:
    model = SparseEncoder.load(tiny_checkpoint(tmp_path / "m", architecture)).model
    freeze(model, trained)  # type: ignore[arg-type]
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == names


def test_freeze_all_freezes_nothing(tmp_path: Path) -> None:
    model = SparseEncoder.load(tiny_checkpoint(tmp_path / "m", "roberta")).model
    freeze(model, "all")
    assert all(parameter.requires_grad for parameter in model.parameters())
