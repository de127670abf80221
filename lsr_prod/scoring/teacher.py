"""Teachers: models that score a document for a query."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lsr_prod.config import TeacherModelSettings
from lsr_prod.errors import ConfigError, EncoderBrokenError
from lsr_prod.scoring.cross_encoder import CrossEncoder
from lsr_prod.scoring.dense import DenseEncoder
from lsr_prod.scoring.sparse import SparseVectors
from lsr_prod.scoring.two_encoder import TwoEncoder

_PROBE = ("word", "word")


class Teacher(Protocol):
    """A model that scores pairs of query and document."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
        """Score pairs; equal pairs in the same order give the same bits.

        Returns:
            float32 [n], NaN for a pair on which the model fails; and, by position, why it fails.
        """

    def forget(self) -> None:
        """Drop what is kept of earlier pairs."""


class PairScorer:
    """A teacher with the activation and the scale of the settings."""

    def __init__(self, teacher: Teacher, settings: TeacherModelSettings) -> None:
        self._teacher, self._settings = teacher, settings

    def score(self, pairs: Sequence[tuple[str, str]]) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
        """Score pairs, as ``Teacher`` defines it."""
        scores, failed = self._teacher.score(pairs)
        values = scores.astype(np.float64)
        if self._settings.activation == "sigmoid":
            values = 0.5 * (1 + np.tanh(values / 2))  # the sigmoid, without an overflow
        values *= self._settings.scale
        too_large = np.flatnonzero(np.abs(values) > np.finfo(np.float32).max)  # NaN of a failed pair compares as false
        return values.astype(np.float32), failed | {int(i): "the score exceeds 32 bits" for i in too_large}

    def forget(self) -> None:
        """Drop what is kept of earlier pairs."""
        self._teacher.forget()


def validate_teacher(folder: Path, settings: TeacherModelSettings, *, field: str) -> None:
    """Open the teacher on this machine's CPU and drop it."""
    if settings.precision == "fp16":  # few operations of CPUs have it
        settings = settings.model_copy(update={"precision": "fp32"})
    open_teacher(folder, settings, batch_tokens=1, field=field)


def open_teacher(
    folder: Path,
    settings: TeacherModelSettings,
    *,
    batch_tokens: int,
    field: str,
    device: str = "cpu",
    threads: int = 1,
) -> PairScorer:
    """Open the teacher in a folder, and score one pair with it."""
    teacher: Teacher
    if settings.kind == "cross_encoder":
        teacher = CrossEncoder(folder, settings, device=device, batch_tokens=batch_tokens, field=field)
    elif settings.kind == "dense":
        dense = DenseEncoder(folder, settings, device=device, batch_tokens=batch_tokens, field=field)
        teacher = TwoEncoder(dense)
    else:
        sparse = SparseVectors(folder, settings, device=device, batch_tokens=batch_tokens, threads=threads, field=field)
        teacher = TwoEncoder(sparse)
    scorer = PairScorer(teacher, settings)
    try:
        problem = scorer.score([_PROBE])[1].get(0)
    except EncoderBrokenError as error:
        problem = str(error)
    scorer.forget()
    if problem:
        raise ConfigError(f"{field}.model", f"{folder} cannot score a plain word ({problem})", "give another model")
    return scorer
