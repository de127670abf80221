"""Stage ``distil_head``: learn the sparse vectors of a teacher (vocabulary-transfer, 6.3, SAP)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsr_prod.config.language import DistilHeadSettings
from lsr_prod.config.train import TrainSettings
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.formats.card import EncoderCard
from lsr_prod.model import model_digest
from lsr_prod.storage.artifacts import put_artifact
from lsr_prod.training.data.layouts import TeacherLayout, TokenSettings
from lsr_prod.training.loop.job import StageRun
from lsr_prod.training.stages.facts import ModelFacts
from lsr_prod.training.stages.language import check_language, load_start_model, train_language


def check(
    stage: DistilHeadSettings, train: TrainSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    pins = check_language(stage, train, facts, options)
    try:
        card = EncoderCard.load(Path(stage.teacher))
        pins["teacher"] = model_digest(Path(stage.teacher))
    except ArtifactError as error:
        raise ConfigError("teacher", str(error), "name a model directory of lsr_prod") from error
    known = facts.vocabulary_sha256
    if card.vocabulary_size != facts.vocabulary_size or (known is not None and card.vocabulary_sha256 != known):
        raise ConfigError(
            "teacher",
            f"its {card.vocabulary_size} output terms differ from the model's {facts.vocabulary_size}",
            "give a teacher with the same output vocabulary, or transfer the model to the teacher's before this stage",
        )
    return pins, facts


def run(stage: DistilHeadSettings, job: StageRun) -> Mapping[str, Any]:
    """Train the model; see ``train_language``."""
    model = load_start_model(job)
    teacher = Path(stage.teacher)
    card = EncoderCard.load(teacher)
    layout = TeacherLayout(
        TokenSettings.of_model(
            teacher, query_max_length=card.query_max_length, document_max_length=card.document_max_length, plain=False
        )
    )
    digest = model_digest(teacher)
    put_artifact(job.work, f"models/{digest}", teacher)  # all workers can read the work store
    return train_language(stage, job, model, layout, teacher=digest)
