"""Number of steps of a stage on plain text, and whether data and workers fill its batches."""

from lsr_prod.config.language import LanguageSettings
from lsr_prod.errors import ConfigError


def language_steps(settings: LanguageSettings, rows: int) -> int:
    """Return the steps of the stage over a training set of ``rows`` rows."""
    if settings.steps is not None:
        return settings.steps
    assert settings.epochs is not None
    return max(1, round(settings.epochs * (rows // settings.batch.texts)))


def check_texts(stage: LanguageSettings, rows: int, workers: int) -> None:
    """Reject a batch that the data or the workers cannot fill."""
    texts, part = stage.batch.texts, stage.batch.texts // stage.batch.accumulate
    if rows < texts:
        raise ConfigError("batch.texts", f"{texts} is more than the {rows} rows of data", "lower it, or give more data")
    if part < workers:
        raise ConfigError("train.workers", f"{workers} cannot share {part} texts", "give each at least one text")
