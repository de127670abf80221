"""Folders that Hugging Face ``datasets`` saved: Arrow streams named by ``state.json``, or one folder per split."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.folders import source_entries, source_error
from lsr_prod.corpus.formats import arrow, interface
from lsr_prod.corpus.pinned_file import SourceFile, pin_files
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Entry, Store


def is_saved_dataset(store: Store) -> bool:
    """Return whether ``save_to_disk`` of a dataset, or of a dictionary of splits, wrote this folder."""
    dataset = store.entry("state.json") is not None and store.entry("dataset_info.json") is not None
    return dataset or store.entry("dataset_dict.json") is not None


def dataset_files(store: Store) -> Iterator[Entry]:
    """Yield the files of every split, in row order."""
    splits = _read(store, "dataset_dict.json").get("splits") if store.entry("dataset_dict.json") else [""]
    if not isinstance(splits, list) or not all(isinstance(split, str) for split in splits):
        raise _broken(store, "dataset_dict.json", "it names no splits")
    entries = {entry.name: entry for entry in source_entries(store)}
    for split in splits:
        folder = f"{split}/" if split else ""
        state = _read(store, f"{folder}state.json")
        if state.get("_indices_data_files"):
            raise source_error(
                f"{store.uri}/{folder}state.json selects rows by an index",
                "save the dataset again after flatten_indices()",
            )
        for name in _data_files(store, f"{folder}state.json", state):
            if folder + name not in entries:
                raise source_error(f"{store.uri}/{folder}{name} of the saved dataset is missing", "save it again")
            yield entries[folder + name]


def _data_files(store: Store, name: str, state: dict[str, Any]) -> list[str]:
    files = state.get("_data_files")
    try:
        return [str(file["filename"]) for file in files or ()]
    except (TypeError, KeyError) as error:
        raise _broken(store, name, "it names no files") from error


def _read(store: Store, name: str) -> dict[str, Any]:
    try:
        value = json.loads(store.get(name) or b"")
    except ValueError as error:
        raise _broken(store, name, "it is missing or not JSON") from error
    if not isinstance(value, dict):
        raise _broken(store, name, "it is not an object")
    return value


def _broken(store: Store, name: str, problem: str) -> ConfigError:
    return source_error(f"{store.uri}/{name}: {problem}", "save the dataset again")


def _open(path: str, options: dict[str, str]) -> Store:
    if not is_saved_dataset(store := Store(path, options)):
        raise source_error(f"{path} has no state.json", "give a folder that save_to_disk wrote")
    return store


def _files(path: str, _settings: SourceSettings, options: dict[str, str]) -> Iterator[SourceFile]:
    yield from pin_files((path, entry, arrow.ARROW_STREAM.name) for entry in dataset_files(_open(path, options)))


def _schema(path: str, _settings: SourceSettings, options: dict[str, str]) -> pa.Schema:
    """Return the columns of the first file: ``datasets`` saves all files of a dataset with one schema."""
    store = _open(path, options)
    first = next(dataset_files(store), None)
    if first is None:
        return pa.schema([])
    try:
        with store.open_reader(first.name) as handle, pa.ipc.open_stream(handle) as stream:
            return stream.schema
    except (pa.ArrowException, OSError) as error:
        raise _broken(store, first.name, f"it is not a readable Arrow stream ({error})") from error


SAVED_DATASET = interface.FolderFormat(
    "datasets", lambda path, options: is_saved_dataset(Store(path, options)), _files, _schema
)
