"""Number of steps of a fine-tuning, and whether data and workers fill its batches."""

from lsr_prod.config.train import FinetuneSettings
from lsr_prod.errors import ConfigError


def total_steps(settings: FinetuneSettings, *rows: int) -> int:
    """Return the steps of the stage over training sets of these numbers of rows."""
    if settings.steps is not None:
        return settings.steps
    assert settings.epochs is not None
    return max(1, round(settings.epochs * sum(count // settings.batch.queries for count in rows)))


def check_batch(settings: FinetuneSettings, rows: int, workers: int) -> None:
    """Reject a batch that the data or the workers cannot fill."""
    queries, part = settings.batch.queries, settings.batch.queries // settings.batch.accumulate
    if rows < queries:
        raise ConfigError("train.stages.batch.queries", f"{queries} is more than the {rows} rows of data", "lower it")
    if part < workers:
        raise ConfigError("train.workers", f"{workers} cannot share {part} queries", "give each at least one query")
    if settings.scale.strategy == "fsdp" and part % workers:
        raise ConfigError(
            "train.stages.batch.queries", f"{part} queries do not divide among {workers} workers",
            "fsdp needs equal shares; give a multiple",
        )  # fmt: skip


def check_unique(settings: FinetuneSettings, queries: int, positives: int) -> None:
    """Reject unique batches that the data cannot fill."""
    most = min(queries, positives)
    if settings.batch.unique and most < settings.batch.queries:
        raise ConfigError(
            "train.stages.batch.unique",
            f"the data has {queries} different queries and {positives} different positives, too few for "
            f"{settings.batch.queries} rows that differ in both",
            f"lower batch.queries to {most} or less, or set batch.unique to false",
        )
