"""Records of the training: ``training.json`` of a model, the digests of its ancestors, and records of finished stages.

``training.json`` contains no time and no path: a repeated stage makes the same model directory. The record of a stage
is ``stages/<stage digest>.json`` in the work store.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from lsr_prod.errors import ArtifactError, FormatVersionError
from lsr_prod.model import model_digest
from lsr_prod.storage import Store, artifacts, drafts
from lsr_prod.storage.formats import bundle_format, digests

TRAINING_FILE = "training.json"
TRAINING_FORMAT = 1
_REMEDY = "use a model that lsr-prod train wrote"
_FORMAT = 1  # of the record of a stage
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ancestor:
    """Ancestor of a model."""

    model: str  # digest of the ancestor
    # its ``training.json``; None: it was not trained by a chain, or is not in the store
    training: Mapping[str, Any] | None


def write_lineage(folder: Path, *, parent: str, parents: tuple[str, ...], training: Mapping[str, Any]) -> str:
    """Add the lineage to a new model directory that has no readers yet; return the digest of the directory."""
    card = replace(bundle_format.EncoderCard.load(folder), parents=(parent, *parents))
    drafts.write_file(folder / bundle_format.CARD_FILE, card.to_bytes())
    content = {"format": TRAINING_FORMAT, "parent": parent, **training}
    text = json.dumps(json.loads(digests.canonical_json(content)), indent=2, sort_keys=True, ensure_ascii=False)
    drafts.write_file(folder / TRAINING_FILE, f"{text}\n".encode())
    return model_digest(folder)


def read_training(folder: Path) -> Mapping[str, Any] | None:
    """Return ``training.json`` of a model directory; None: there is none."""
    path = folder / TRAINING_FILE
    return _parse(path.read_bytes(), str(path)) if path.is_file() else None


def lineage(folder: Path, store: Store | None = None) -> list[Ancestor]:
    """Return the model and its ancestors, the model first."""
    card = bundle_format.EncoderCard.load(folder)
    found = [Ancestor(model_digest(folder), read_training(folder))]
    for digest in card.parents:
        training = found[-1].training
        if training is not None and training["parent"] != digest:
            raise ArtifactError(
                f"{folder}: the card names the parent {digest}, but its {TRAINING_FILE} {training['parent']}; {_REMEDY}"
            )
        found.append(Ancestor(digest, _training_of(store, digest) if store else None))
    return found


def _training_of(store: Store, digest: str) -> Mapping[str, Any] | None:
    name = f"models/{digest}"
    data = artifacts.read_artifact_file(store, name, TRAINING_FILE) if artifacts.has_artifact(store, name) else None
    return None if data is None else _parse(data, f"{store.uri}/{name}/{TRAINING_FILE}")


def _parse(data: bytes, where: str) -> Mapping[str, Any]:
    def checked(value: Any) -> Mapping[str, Any]:
        if not isinstance(value["parent"], str) or not isinstance(value["stage"], str):
            raise TypeError("parent and stage must be strings")
        return dict(value)

    return _read(data, where, TRAINING_FORMAT, checked, _REMEDY)


def _read(data: bytes, where: str, known: int, parse: Callable[[Any], T], remedy: str) -> T:
    """Parse a record of a known format."""
    with digests.parsing(f"{where} is damaged", remedy):
        value = json.loads(data)
        if value["format"] != known:
            raise FormatVersionError(f"{where} has format {value['format']}; this release reads {known}")
        return parse(value)


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

    def parse(value: Any) -> StageRecord:
        return StageRecord(value["model"], value["parent"], dict(value["training"]), dict(value["summary"]))

    return _read(data, f"{store.uri}/{_path(name)}", _FORMAT, parse, "delete it to train again")


def save_record(store: Store, name: str, record: StageRecord) -> StageRecord:
    """Write the record of a finished stage; return the valid one, as a concurrent run may have finished first."""
    if store.put_new(_path(name), digests.record_bytes({"format": _FORMAT, **asdict(record)})):
        return record
    found = load_record(store, name)
    assert found is not None  # records are never deleted by a run
    return found


def _path(name: str) -> str:
    return f"stages/{name}.json"
