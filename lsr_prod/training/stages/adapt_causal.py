"""Stage ``adapt_causal``: predict the next token with the activation of sparse vectors (csplade, 3.2)."""

from collections.abc import Mapping
from typing import Any

from lsr_prod.config.language import AdaptCausalSettings
from lsr_prod.config.train import TrainSettings
from lsr_prod.errors import ConfigError
from lsr_prod.training.data.layouts import PackedLayout
from lsr_prod.training.loop.job import StageRun
from lsr_prod.training.stages.facts import ModelFacts
from lsr_prod.training.stages.language import check_language, load_start_model, text_length, train_language


def check(
    stage: AdaptCausalSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    pins = check_language(stage, train, facts, options)
    if facts.kind != "causal":
        raise ConfigError(
            "stage",
            f"adapt_causal predicts the next token, and {facts.architecture} predicts masked tokens",
            "take adapt_mlm",
        )
    if "eos" not in facts.roles:
        raise ConfigError(
            "stage",
            "texts are packed with the eos token between them, and the tokenizer has none",
            "name an eos token in the tokenizer",
        )
    if facts.output_vocabulary != "tokenizer":
        raise ConfigError(
            "stage",
            "adapt_causal predicts tokens, and the model's output terms are words",
            "put it before the stage that changes the output terms",
        )
    return pins, facts


def run(stage: AdaptCausalSettings, job: StageRun) -> Mapping[str, Any]:
    """Train the model; see ``train_language``."""
    model = load_start_model(job)
    end = model.encoder.tokenizer.eos_token_id
    assert end is not None
    return train_language(stage, job, model, PackedLayout(text_length(stage, model.encoder), int(end)))
