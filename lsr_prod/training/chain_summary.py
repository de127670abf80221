"""Summary of a training chain, for the table and the RESULT line of the job."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StageSummary:
    """Summary of one stage.

    Attributes:
        number: position in the chain, from 0.
        kind: kind of the stage, such as ``finetune``.
        stage: digest of the stage.
        parent: digest of the model that it started from.
        model: digest of the model that it made.
        skipped: an earlier run had finished the stage.
        figures: figures of the run that finished it, such as steps and loss.
    """

    number: int
    kind: str
    stage: str
    parent: str
    model: str
    skipped: bool
    figures: Mapping[str, Any]

    def result(self) -> dict[str, Any]:
        """Return the summary as a flat mapping."""
        return {
            "number": self.number,
            "kind": self.kind,
            "stage": self.stage,
            "parent": self.parent,
            "model": self.model,
            "skipped": self.skipped,
            **self.figures,
        }


@dataclass(frozen=True, slots=True)
class ChainSummary:
    """Summary of a chain.

    Attributes:
        output: folder of the trained model.
        start_digest: digest of the model that the chain started from.
        stages: summaries of the stages.
        seconds: duration of this run.
        warnings: sentences about settings that are possible and probably wrong.
    """

    output: str
    start_digest: str
    stages: tuple[StageSummary, ...]
    seconds: float
    warnings: tuple[str, ...] = ()

    @property
    def model_digest(self) -> str:
        """Digest of the trained model."""
        return self.stages[-1].model

    def result(self) -> dict[str, Any]:
        """Return the summary as a flat mapping; ``stage_rows`` has one mapping per stage."""
        return {
            "output": self.output,
            "model_digest": self.model_digest,
            "start_digest": self.start_digest,
            "stages": len(self.stages),
            "stages_skipped": sum(stage.skipped for stage in self.stages),
            "seconds": self.seconds,
            "warnings": list(self.warnings),
            "stage_rows": [stage.result() for stage in self.stages],
        }
