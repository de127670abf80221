"""Stage ``pretrain_emlm``: predict masked words with an output vocabulary of words (esplade-pretraining, B.2)."""

from collections.abc import Mapping
from typing import Any

from lsr_prod.config.language import PretrainEmlmSettings
from lsr_prod.config.train import TrainSettings
from lsr_prod.errors import ConfigError
from lsr_prod.terms.words import refuse_tokens
from lsr_prod.training.loop.job import StageRun
from lsr_prod.training.stages.facts import ModelFacts
from lsr_prod.training.stages.language import check_language, check_masked, load_start_model, train_language
from lsr_prod.training_data.layouts import WordLayout


def check(
    stage: PretrainEmlmSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    pins = check_language(stage, train, facts, options)
    check_masked(stage.stage, facts)
    if facts.output_vocabulary != "words":
        raise ConfigError(
            "stage",
            "pretrain_emlm predicts words, and the model's output terms are tokens",
            "put expand_vocabulary before this stage, or take adapt_mlm",
        )
    if facts.token_head:
        refuse_tokens("stage")
    return pins, facts


def run(stage: PretrainEmlmSettings, job: StageRun) -> Mapping[str, Any]:
    """Train the model; see ``train_language``."""
    model = load_start_model(job)
    return train_language(stage, job, model, WordLayout(tuple(model.encoder.vocabulary)))
