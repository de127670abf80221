"""What a stage reads, named by its content: data that moved is the same, data that changed makes the stage run anew."""

import logging
from pathlib import Path

from lsr_prod.config.train import ValidationSettings
from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.corpus.sources import resolve_source
from lsr_prod.errors import ConfigError
from lsr_prod.formats.digest import digest_json, digest_path
from lsr_prod.training_data.records import source_settings
from lsr_prod.training_data.schemas import check_schemas

__all__ = ["pin_data", "pin_validation"]

log = logging.getLogger(__name__)


def pin_data(data: TrainingDataSettings, options: dict[str, str]) -> str:
    """Digest (hex) of the files of training data in their order; local files are read, about a second for each GiB.

    Args:
        data: paths, format, version, kind and columns.
        options: options of the object store.

    Raises:
        ConfigError: a path points nowhere, or a file cannot hold the rows.
    """
    try:
        files = list(resolve_source(source_settings(data), options, collections=False))
    except ConfigError as error:
        name = error.field.removeprefix("source.")
        raise ConfigError(f"data.{name}", error.problem, error.remedy) from error
    check_schemas(files, data, options)
    log.info("training data", extra={"fields": {"files": len(files), "bytes": sum(file.size for file in files)}})
    return digest_json([file.identity() for file in files])


def pin_validation(validation: ValidationSettings) -> str:
    """Digest (hex) of the collection that a stage is validated by."""
    return digest_json([digest_path(Path(path)) for path in (validation.corpus, validation.queries, validation.qrels)])
