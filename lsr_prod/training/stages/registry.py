"""Registry of the stages of a training chain: the functions that check and run each kind, and the digest of a stage.

To add a kind of stage: its settings in ``lsr_prod.config``, a module with ``check`` and ``run`` in this package, and a
line in ``REGISTRY``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lsr_prod.config import FinetuneSettings, StageSettings, TrainSettings
from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.vocabulary import RescaleHeadSettings
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.formats.digest import digest_json
from lsr_prod.model import SparseEncoder
from lsr_prod.storage.folders import open_source
from lsr_prod.training.data.rows import sample_rows
from lsr_prod.training.data.schemas import pin_data
from lsr_prod.training.stages import (
    adapt_causal,
    adapt_mlm,
    calibrate,
    distil_head,
    expand_vocabulary,
    finetune,
    language,
    set_encoder,
    transfer_vocabulary,
)
from lsr_prod.training.stages.facts import ModelFacts
from lsr_prod.training.stages.finetune import Excluded, Stage, transformation
from lsr_prod.training.steps import batch_rows, check_batch
from lsr_prod.training.vocabulary.head import ALPHAS, choose_alpha, head_norms, probe_scale, scale_head


def check(stage: RescaleHeadSettings, facts: ModelFacts, options: dict[str, str]) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    if stage.alpha == "auto" and facts.query_encoder != "model":
        raise ConfigError(
            "alpha", "auto encodes sample queries, and this model does not encode queries", "rescale before set_encoder"
        )
    return ({} if stage.data is None else {"data": pin_data(stage.data, options)}), facts


def run(
    encoder: SparseEncoder,
    stage: RescaleHeadSettings,
    *,
    options: dict[str, str],
    scratch: Path,  # noqa: ARG001 - all stages have the same signature
) -> tuple[SparseEncoder, dict[str, Any]]:
    """Divide the output matrix.

    Returns:
        The new encoder, and a flat summary; with ``auto``, ``probes`` has one mapping per constant.
    """
    made = encoder.clone()
    summary: dict[str, Any] = {}
    alpha = stage.alpha
    if isinstance(alpha, str):
        assert stage.data is not None
        rows = sample_rows(stage.data, options, stage.pairs)
        queries, positives = [row.query or "" for row in rows], [row.documents[0] for row in rows]
        probes = [probe_scale(made, queries, positives, one) for one in ALPHAS]
        alpha = choose_alpha(probes, max_score=stage.max_score, max_weight=stage.max_weight)
        summary["probes"] = [asdict(probe) for probe in probes]
    before = head_norms(made)
    scale_head(made, alpha)
    after = head_norms(made)
    return made, {"alpha": alpha, "mean_norm_before": before.mean_norm, "mean_norm": after.mean_norm, **summary}


_FORMAT = 2  # raise it when the same settings train other weights
_ANY_HEAD = ("finetune", "set_encoder")  # stages that do not need a vocabulary head
# The content of these folders enters digests, not their place.
_FOLDERS = ("query_model", "reference", "target", "target_embeddings", "teacher")
_LOCATION = {"paths", "format", "version", "max_bad_fraction"}
_DATA: Excluded = {"data": _LOCATION}
_TRAINING: Excluded = {**_DATA, "watch": True, "checkpoint_every": True}
_LANGUAGE: Excluded = {**_TRAINING, "validation": True}
_FINETUNE: Excluded = {
    **_TRAINING,
    "validation": {"corpus", "queries", "qrels"},
    "idf_corpus": _LOCATION,
    "query_model": True,
}
_TRANSFER: Excluded = {
    "target": True,
    "target_embeddings": True,
    "train_tokenizer": {"data": _LOCATION},
    "unigrams": _LOCATION,
}
REGISTRY: dict[str, Stage] = {
    "finetune": Stage(finetune.check, finetune.run, _FINETUNE),
    "adapt_mlm": Stage(adapt_mlm.check, adapt_mlm.run, {**_LANGUAGE, "reference": True}),
    "pretrain_emlm": Stage(language.check, language.run, _LANGUAGE),
    "adapt_causal": Stage(adapt_causal.check, adapt_causal.run, _LANGUAGE),
    "distil_head": Stage(distil_head.check, distil_head.run, {**_LANGUAGE, "teacher": True}),
    "transfer_vocabulary": transformation(transfer_vocabulary.check, transfer_vocabulary.run, _TRANSFER),
    "expand_vocabulary": transformation(expand_vocabulary.check, expand_vocabulary.run, _DATA),
    "calibrate": transformation(calibrate.check, calibrate.run, _DATA),
    "rescale_head": transformation(check, run, _DATA),
    "set_encoder": transformation(set_encoder.check, set_encoder.run, {}),
}
"""The implementation of every kind of stage, by the value of its setting ``stage``."""


def check_stage(
    stage: StageSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check everything about a stage that can be known before it runs; nothing is written.

    Returns:
        The digest of each input by name, and the facts of the model when the stage has ended.
    """
    if facts.query_encoder == "separate" and stage.stage != "finetune":
        raise ConfigError(
            "stage",
            f"{stage.stage} changes one encoder, but this model has a separate query encoder",
            "run it before the finetune stage with query_model",
        )
    if facts.head == "token_weights" and stage.stage not in _ANY_HEAD:
        raise ConfigError(
            "stage",
            f"{stage.stage} needs a vocabulary head, and the model has a head of token weights (BGE-M3)",
            f"remove the stage; this model supports {' and '.join(_ANY_HEAD)}",
        )
    return REGISTRY[stage.stage].check(local_inputs(stage, options), train, facts, options)


def accepts_workers(stages: Sequence[StageSettings], workers: int) -> bool:
    """Return whether the batches of all stages can be divided among a number of workers."""
    try:
        for stage in stages:
            if isinstance(stage, FinetuneSettings | LanguageSettings):
                check_batch(stage, batch_rows(stage), workers)
    except ConfigError:
        return False
    return True


def local_inputs(stage: StageSettings, options: dict[str, str]) -> StageSettings:
    """Return the settings with the folders of the node cache in place of the URIs of models and tokenizers."""
    folders: dict[str, str] = {}
    for name in _FOLDERS:
        place = getattr(stage, name, None)
        if place is not None:
            try:
                folders[name] = open_source(place, options)
            except ArtifactError as error:
                raise ConfigError(name, str(error), "give a folder or the URI of a stored one") from error
    return stage.model_copy(update=folders) if folders else stage


@contextmanager
def errors_of_stage(number: int) -> Iterator[None]:
    """Add the number of the stage to errors about settings: ``data.paths`` becomes ``train.stages.0.data.paths``."""
    try:
        yield
    except ConfigError as error:
        inner = error.field.removeprefix("train.stages.")
        whole = error.field.startswith("train.") and inner == error.field
        raise ConfigError(
            error.field if whole else f"train.stages.{number}.{inner}", error.problem, error.remedy
        ) from error


def identity(stage: StageSettings) -> dict[str, Any]:
    """Return the settings that decide the model; they contain no path and no secret."""
    excluded = REGISTRY[stage.stage].not_in_digest
    if isinstance(getattr(stage, "data", None), list):
        excluded = {**excluded, "data": {"__all__": _LOCATION | {"name"}}}
    return stage.model_dump(mode="json", exclude=excluded)


def stage_digest(stage: StageSettings, pins: Mapping[str, str], parent: str) -> str:
    """Return the digest (sha256, hex) that names a stage's work: stages with the same digest make the same model."""
    return digest_json({"format": _FORMAT, "parent": parent, "pins": dict(pins), "stage": identity(stage)})
