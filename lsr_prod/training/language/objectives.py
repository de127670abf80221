"""The objectives on plain text by the settings of their stages."""

from collections.abc import Sequence
from pathlib import Path

from lsr_prod.config.language import (
    AdaptCausalSettings,
    AdaptMlmSettings,
    DistilHeadSettings,
    LanguageSettings,
    PretrainEmlmSettings,
)
from lsr_prod.model import SparseEncoder
from lsr_prod.training.language.masked_language import MaskedTokens, MaskedWords
from lsr_prod.training.language.next_tokens import NextTokens
from lsr_prod.training.language.objective import LanguageObjective
from lsr_prod.training.language.teacher_vectors import TeacherVectors


def make_objective(
    stage: LanguageSettings, encoder: SparseEncoder, *, new_tokens: Sequence[int] = (), teacher: Path | None = None
) -> LanguageObjective:
    """Create the objective of a stage."""
    match stage:
        case AdaptMlmSettings():
            return MaskedTokens(stage, encoder, new_tokens)
        case PretrainEmlmSettings():
            return MaskedWords(stage, encoder)
        case AdaptCausalSettings():
            return NextTokens(stage, encoder)
        case DistilHeadSettings():
            assert teacher is not None
            return TeacherVectors(stage, encoder, teacher)
        case _:
            raise TypeError(f"{type(stage).__name__} has no objective on plain text")
