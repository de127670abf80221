"""Digests of the input of a stage: data that moved keeps its digest; data that changed makes the stage run again."""

from lsr_prod.config.train import ValidationSettings
from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.formats.digest import digest_json
from lsr_prod.logs import get_log
from lsr_prod.storage.folders import digest_file
from lsr_prod.training_data.records import pin_files
from lsr_prod.training_data.schemas import check_schemas

log = get_log(__name__)


def pin_data(data: TrainingDataSettings, options: dict[str, str]) -> str:
    """Return the digest (hex) of the files of training data in order; local files are read, about a second per GiB."""
    files = pin_files(data, options)
    check_schemas(files, data, options)
    log.info("training data", extra={"fields": {"files": len(files), "bytes": sum(file.size for file in files)}})
    return digest_json([file.identity() for file in files])


def pin_validation(validation: ValidationSettings, options: dict[str, str] | None = None) -> str:
    """Return the digest (hex) of the collection that validates a stage."""
    files = (validation.corpus, validation.queries, validation.qrels)
    return digest_json([digest_file(path, options) for path in files])
