"""Number of steps of a stage with a training loop, and whether data and workers fill its batches."""

from lsr_prod.config.language import LanguageSettings
from lsr_prod.config.train import FinetuneSettings
from lsr_prod.errors import ConfigError

LoopSettings = FinetuneSettings | LanguageSettings
"""The settings of a stage with a training loop."""


def batch_rows(stage: LoopSettings) -> int:
    """Return the rows of a batch: its queries, or its texts."""
    return stage.batch.queries if isinstance(stage, FinetuneSettings) else stage.batch.texts


def total_steps(stage: LoopSettings, *rows: int) -> int:
    """Return the steps of the stage over training sets of these numbers of rows."""
    if stage.steps is not None:
        return stage.steps
    assert stage.epochs is not None
    return max(1, round(stage.epochs * sum(count // batch_rows(stage) for count in rows)))


def check_batch(stage: LoopSettings, rows: int, workers: int) -> None:
    """Reject a batch that the data or the workers cannot fill."""
    one, several = ("query", "queries") if isinstance(stage, FinetuneSettings) else ("text", "texts")
    batch, part = batch_rows(stage), batch_rows(stage) // stage.batch.accumulate
    if rows < batch:
        problem = f"{batch} is more than the {rows} rows of data"
        raise ConfigError(f"batch.{several}", problem, "lower it, or give more data")
    if part < workers:
        raise ConfigError("train.workers", f"{workers} cannot share {part} {several}", f"give each at least one {one}")
    if isinstance(stage, FinetuneSettings) and stage.scale.strategy == "fsdp" and part % workers:
        problem = f"{part} queries do not divide among {workers} workers"
        raise ConfigError("batch.queries", problem, "fsdp needs equal shares; give a multiple")


def check_unique(settings: FinetuneSettings, queries: int, positives: int) -> None:
    """Reject unique batches that the data cannot fill."""
    most = min(queries, positives)
    if settings.batch.unique and most < settings.batch.queries:
        raise ConfigError(
            "batch.unique",
            f"the data has {queries} different queries and {positives} different positives, too few for "
            f"{settings.batch.queries} rows that differ in both",
            f"lower batch.queries to {most} or less, or set batch.unique to false",
        )
