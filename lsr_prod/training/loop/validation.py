"""Validation of an encoder while it is trained, in the process of the first worker."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lsr_prod.config.language import LanguageSettings
from lsr_prod.evaluation.validation import Validator
from lsr_prod.model import SparseEncoder
from lsr_prod.storage import Store
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.training.language.validation import LanguageValidator
from lsr_prod.training.loop.job import LoopInputs
from lsr_prod.training.query_weights import idf_encoder, learned_encoder
from lsr_prod.training.steps import LoopSettings
from lsr_prod.training_data.training_set import TrainingSet


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Result of one validation."""

    measures: dict[str, float]  # measures by name; ``validation.keep_best`` names one of them
    others: dict[str, float]  # further reported figures by name


def make_validator(
    stage: LoopSettings, encoder: SparseEncoder, work: Store, inputs: LoopInputs, scratch: Path
) -> Callable[[SparseEncoder], ValidationResult] | None:
    """Return a function that validates an encoder; None: the stage has no validation."""
    if stage.validation is None:
        return None
    if isinstance(stage, LanguageSettings):
        assert inputs.validation_set is not None
        teacher = None if inputs.teacher is None else fetch_artifact(work, f"models/{inputs.teacher}")
        texts = LanguageValidator(
            stage, TrainingSet.open(work, inputs.validation_set), encoder, new_tokens=inputs.new_tokens, teacher=teacher
        )
        return lambda one: ValidationResult({}, dict(texts(one)))
    collection = Validator(stage.validation, scratch, work.options)
    weighed = None
    if encoder.card.query_encoder == "idf":
        weighed = idf_encoder(encoder, collection.collection.documents.values())
    elif encoder.card.query_encoder == "learned":
        weighed = learned_encoder(encoder)

    def validate(one: SparseEncoder) -> ValidationResult:
        found = collection(one.encode if weighed is None else weighed(one))
        return ValidationResult(
            dict(found.measures), {"l0_query": found.l0_query, "l0_document": found.l0_document, "flops": found.flops}
        )

    return validate
