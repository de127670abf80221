"""What the stages on plain text refuse before any work, and what they read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer

from lsr_prod.config.language import (
    AdaptCausalSettings,
    AdaptMlmSettings,
    DistilHeadSettings,
    LanguageSettings,
    PretrainEmlmSettings,
)
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.formats.bundle import TOKENIZER_FILE
from lsr_prod.formats.card import EncoderCard
from lsr_prod.formats.digest import digest_path
from lsr_prod.model import model_digest
from lsr_prod.terms.words import refuse_tokens
from lsr_prod.training.facts import ModelFacts, check_length
from lsr_prod.training.lora import check_lora
from lsr_prod.training.trackers import check_watch
from lsr_prod.training_data.pins import pin_data

__all__ = ["check_language", "check_texts", "of_validation", "reference_file"]


def check_language(
    stage: LanguageSettings, workers: int, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check everything about a stage on plain text that can be known before it runs.

    Args:
        stage: its settings.
        workers: training processes.
        facts: what the model is by then.
        options: options of the object store.

    Returns:
        What it reads, name -> digest, and what the model is afterwards.

    Raises:
        ConfigError: a setting is wrong, or does not fit the model.
        MissingExtraError: a package that it asks for is not installed.
    """
    check_watch(stage.watch)
    check_texts(stage, stage.batch.texts, workers)
    check_length("max_length", stage.max_length, facts)
    if stage.scale.lora is not None:
        check_lora(stage.scale.lora, facts.linear_modules, facts.architecture)
    if stage.trained == "head" and facts.tied:
        raise ConfigError(
            "trained",
            "the output matrix is that of the token embeddings, so the head cannot be trained alone",
            "give embeddings or all, or replace the output vocabulary before",
        )
    pins = {"data": pin_data(stage.data, options)}
    if stage.validation is not None:
        with of_validation():
            pin_data(stage.validation.data, options)  # it decides no weight, but has to be there
    match stage:
        case AdaptMlmSettings():
            _check_masked(stage.stage, facts)
            pins |= _check_new_tokens(stage, facts)
        case PretrainEmlmSettings():
            _check_masked(stage.stage, facts)
            if facts.output_vocabulary != "words":
                raise ConfigError(
                    "stage",
                    "pretrain_emlm predicts words, and the model's output terms are tokens",
                    "let expand_vocabulary come before it, or take adapt_mlm",
                )
            if facts.token_head:
                refuse_tokens("stage")
        case AdaptCausalSettings():
            _check_causal(facts)
        case DistilHeadSettings():
            pins["teacher"] = _check_teacher(stage, facts)
    return pins, facts


@contextmanager
def of_validation() -> Iterator[None]:
    """Errors about data become errors about the data of a validation."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"validation.{error.field}", error.problem, error.remedy) from error


def check_texts(stage: LanguageSettings, rows: int, workers: int) -> None:
    """Refuse a batch that the data or the workers cannot fill.

    Raises:
        ConfigError: see its text.
    """
    texts, part = stage.batch.texts, stage.batch.texts // stage.batch.accumulate
    if rows < texts:
        raise ConfigError("batch.texts", f"{texts} is more than the {rows} rows of data", "lower it, or give more data")
    if part < workers:
        raise ConfigError("train.workers", f"{workers} cannot share {part} texts", "give each at least one text")


def reference_file(reference: str) -> Path:
    """The ``tokenizer.json`` that ``reference`` names.

    Raises:
        ConfigError: there is none.
    """
    path = Path(reference) / TOKENIZER_FILE if Path(reference).is_dir() else Path(reference)
    try:
        Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more special
        raise ConfigError(
            "reference", f"{reference} has no tokenizer.json that opens ({error})", "name that of the old vocabulary"
        ) from error
    return path


def _check_masked(kind: str, facts: ModelFacts) -> None:
    if facts.kind != "masked" or "mask" not in facts.roles:
        what = "a causal model" if facts.kind == "causal" else "a model whose tokenizer has no mask token"
        raise ConfigError(
            "stage", f"{kind} fills in masked tokens, and {facts.architecture} is {what}", "take adapt_causal"
        )
    if kind == "adapt_mlm" and facts.output_vocabulary != "tokenizer":
        raise ConfigError(
            "stage", "adapt_mlm predicts tokens, and the model's output terms are words", "take pretrain_emlm"
        )


def _check_causal(facts: ModelFacts) -> None:
    if facts.kind != "causal":
        raise ConfigError(
            "stage", f"adapt_causal predicts the next token, and {facts.architecture} fills in masks", "take adapt_mlm"
        )
    if "eos" not in facts.roles:
        raise ConfigError("stage", "texts are packed with eos between them, and the tokenizer has none", "name one")
    if facts.output_vocabulary != "tokenizer":
        raise ConfigError(
            "stage", "adapt_causal predicts tokens, and the model's output terms are words", "let it come before them"
        )


def _check_new_tokens(stage: AdaptMlmSettings, facts: ModelFacts) -> dict[str, str]:
    if stage.reference is not None:
        return {"reference": digest_path(reference_file(stage.reference))}
    if stage.new_token_weight != 1 and not facts.transferred:
        raise ConfigError(
            "new_token_weight",
            "the model has no record of which tokens are new",
            "set it to 1, name the old vocabulary in reference, or let transfer_vocabulary come before",
        )
    return {}


def _check_teacher(stage: DistilHeadSettings, facts: ModelFacts) -> str:
    try:
        card = EncoderCard.load(Path(stage.teacher))
        digest = model_digest(Path(stage.teacher))
    except ArtifactError as error:
        raise ConfigError("teacher", str(error), "name a model directory of lsr_prod") from error
    known = facts.vocabulary_sha256
    if card.vocabulary_size != facts.vocabulary_size or (known is not None and card.vocabulary_sha256 != known):
        raise ConfigError(
            "teacher",
            f"its output terms are not the model's ({card.vocabulary_size} and {facts.vocabulary_size})",
            "give a teacher with the same output vocabulary, or transfer the model onto the teacher's before",
        )
    return digest
