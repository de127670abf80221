"""Stage ``adapt_mlm``: masked language modeling, in which new tokens are masked more often."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from lsr_prod.config.language import AdaptMlmSettings
from lsr_prod.config.train import TrainSettings
from lsr_prod.errors import ConfigError
from lsr_prod.formats.bundle import TOKENIZER_FILE
from lsr_prod.formats.digest import digest_path, read_record
from lsr_prod.inference.terms.surfaces import Terms, align
from lsr_prod.model.backbone import output_layer
from lsr_prod.model.loading import output_vocabulary
from lsr_prod.training.loop.job import StageRun
from lsr_prod.training.stages.facts import TRANSFER_FILE, ModelFacts
from lsr_prod.training.stages.language import StartModel, check_language, check_masked, load_start_model, train_language


def check(
    stage: AdaptMlmSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    pins = check_language(stage, train, facts, options)
    check_masked(stage.stage, facts)
    if facts.output_vocabulary != "tokenizer":
        raise ConfigError(
            "stage", "adapt_mlm predicts tokens, and the model's output terms are words", "take pretrain_emlm"
        )
    if stage.reference is not None:
        pins["reference"] = digest_path(reference_file(stage.reference))
    elif stage.new_token_weight != 1 and not facts.transferred:
        raise ConfigError(
            "new_token_weight",
            "the model has no record of which tokens are new",
            "set it to 1, name the old vocabulary in reference, or put transfer_vocabulary before this stage",
        )
    return pins, facts


def run(stage: AdaptMlmSettings, job: StageRun) -> Mapping[str, Any]:
    """Train the model; see ``train_language``."""
    model = load_start_model(job)
    return train_language(stage, job, model, new_tokens=find_new_tokens(stage, model))


def find_new_tokens(stage: AdaptMlmSettings, model: StartModel) -> tuple[int, ...]:
    """Return the tokens that the old vocabulary lacks, which are masked more often."""
    if stage.new_token_weight == 1:
        return ()
    if stage.reference is None:
        record = model.folder / TRANSFER_FILE
        return read_record(record, lambda value: tuple(int(one) for one in value["new"]), "transfer it")
    tokenizer = json.loads(reference_file(stage.reference).read_text(encoding="utf-8"))
    vocabulary, added = tokenizer["model"]["vocab"], [one["content"] for one in tokenizer["added_tokens"]]
    known = [*(vocabulary if isinstance(vocabulary, dict) else (piece for piece, _ in vocabulary)), *added]
    encoder = model.encoder
    tokens = output_vocabulary(encoder.tokenizer, len(output_layer(encoder.model)[0]))
    aligned = align(Terms(known), Terms.of(encoder.tokenizer, tokens))
    return tuple(int(token) for token in (aligned < 0).nonzero()[0])


def reference_file(reference: str) -> Path:
    """Return the path of the ``tokenizer.json`` that ``reference`` names."""
    path = Path(reference) / TOKENIZER_FILE if Path(reference).is_dir() else Path(reference)
    try:
        Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise ConfigError(
            "reference",
            f"{reference} has no tokenizer.json that can be read ({error})",
            "name that of the old vocabulary",
        ) from error
    return path
