"""Separate query encoder of a fine-tuning: its checks, and the model directory of both encoders to start from.

The pair is one model directory, with the query encoder in a folder of its own, so checkpoints, export and lineage treat
it as one model.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lsr_prod.config.train import FinetuneSettings
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.formats.card import EncoderCard
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.storage import Store
from lsr_prod.storage.artifacts import fetch_artifact, put_artifact
from lsr_prod.storage.disk import scratch_folder
from lsr_prod.training.stages.facts import ModelFacts


def check_query_model(
    stage: FinetuneSettings, facts: ModelFacts, *, pins: Mapping[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the query encoder against the model of the chain; nothing is written.

    Returns:
        The digests with that of the query encoder, and the facts of the model that encodes queries.
    """
    if stage.query_model is None:
        if facts.query_encoder != "separate" and stage.trained != "both":
            raise ConfigError(
                "trained",
                f"{stage.trained} trains one of two encoders, but one model encodes queries and documents",
                "set query_model, or leave trained out",
            )
        _check_scale(stage, facts)
        return dict(pins), facts
    folder = Path(stage.query_model)
    try:
        card, digest = EncoderCard.load(folder), model_digest(folder)
    except ArtifactError as error:
        raise ConfigError("query_model", str(error), "name a model directory of lsr_prod") from error
    if facts.query_encoder != "model" or card.query_encoder != "model":
        found = facts.query_encoder if facts.query_encoder != "model" else card.query_encoder
        raise ConfigError(
            "query_model",
            f"a card says query_encoder {found}: another encoder reads queries already",
            "leave query_model out, or use two models that encode queries themselves",
        )
    if facts.vocabulary_sha256 not in (None, card.vocabulary_sha256):
        raise ConfigError(
            "query_model",
            f"its {card.vocabulary_size} output terms differ from the model's {facts.vocabulary_size}",
            "give a model with the same output vocabulary, or transfer it to that vocabulary first",
        )
    return {**pins, "query_model": digest}, ModelFacts.of(SparseEncoder.load(folder), folder)


def _check_scale(stage: FinetuneSettings, facts: ModelFacts) -> None:
    if facts.query_encoder == "separate" and (stage.scale.lora is not None or stage.scale.strategy == "fsdp"):
        raise ConfigError(
            "scale",
            "a model with a separate query encoder is trained with strategy ddp and without lora",
            "leave lora out and set strategy to ddp",
        )


def with_query_model(stage: FinetuneSettings, work: Store, start: str) -> str:
    """Return the digest of the model directory to start from, with the query encoder in it, in the work store."""
    if stage.query_model is None:
        return start
    folder = Path(stage.query_model)
    queries = SparseEncoder.load(folder)
    queries.card = replace(queries.card, parents=(model_digest(folder), *queries.card.parents))
    documents = SparseEncoder.load(fetch_artifact(work, f"models/{start}"))
    if (documents.model.config.pad_token_id or 0) != (queries.model.config.pad_token_id or 0):
        raise ConfigError("query_model", "its padding token is another one", "give a model with the same padding token")
    with scratch_folder() as scratch:
        pair = scratch / "model"
        digest = documents.with_queries(queries).save(pair)
        put_artifact(work, f"models/{digest}", pair)
    return digest
