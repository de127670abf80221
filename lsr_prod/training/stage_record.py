"""Record of a finished stage: ``stages/<stage digest>.json`` in the work store."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lsr_prod.errors import ArtifactError, FormatVersionError
from lsr_prod.formats.digest import record_bytes
from lsr_prod.storage import Store

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class StageRecord:
    """Record of a finished stage."""

    model: str  # digest of its model in the work store
    parent: str  # digest of the model that it started from
    training: Mapping[str, Any]  # description of the training, as in the model directory
    summary: Mapping[str, Any]  # figures of the run that finished it


def load_record(store: Store, name: str) -> StageRecord | None:
    """Return the record of a stage; None: the stage is not finished."""
    data = store.get(_path(name))
    if data is None:
        return None
    try:
        value = json.loads(data)
        if value["format"] != _FORMAT:
            where = f"{store.uri}/{_path(name)}"
            raise FormatVersionError(f"{where} has format {value['format']}; this release reads {_FORMAT}")
        return StageRecord(value["model"], value["parent"], dict(value["training"]), dict(value["summary"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{store.uri}/{_path(name)} is damaged ({type(error).__name__}: {error}); delete it to train again"
        ) from error


def save_record(store: Store, name: str, record: StageRecord) -> StageRecord:
    """Write the record of a finished stage; return the valid one, as a concurrent run may have finished first."""
    if store.put_new(_path(name), record_bytes({"format": _FORMAT, **asdict(record)})):
        return record
    found = load_record(store, name)
    assert found is not None  # records are never deleted by a run
    return found


def _path(name: str) -> str:
    return f"stages/{name}.json"
