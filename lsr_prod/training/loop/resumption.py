"""Resumption without Ray Train's list of checkpoints.

Ray Train rewrites its list in place at every checkpoint. A kill or a full disk at that moment leaves a truncated list,
with which no controller starts. Checkpoints are self-describing, so the newest complete one is found without the list.
"""

import json
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, FileType

from lsr_prod.formats.digest import FileDigest
from lsr_prod.logs import get_log
from lsr_prod.training.loop.checkpoint import RECORD_FILE
from lsr_prod.training.loop.ray_internals import CHECKPOINT_LIST, CHECKPOINT_PREFIX, listed_checkpoints

log = get_log(__name__)


def find_checkpoint(files: FileSystem, run: str, *, name: str) -> str | None:
    """Find the newest complete checkpoint of a run whose list is missing or damaged; delete a damaged list.

    Returns:
        Path of the checkpoint; None: there is none, or the list is valid and Ray Train resumes by itself.
    """
    complete = {
        path: step for path in _folders(files, run) if (step := _step_of_complete(files, path, name)) is not None
    }
    listed = _listed(files, f"{run}/{CHECKPOINT_LIST}")
    if listed is not None and all(f"{run}/{folder}" in complete for folder in listed):
        return None
    newest = max(complete, key=lambda path: (complete[path], path), default=None)
    if _size(files, f"{run}/{CHECKPOINT_LIST}") is not None:
        files.delete_file(f"{run}/{CHECKPOINT_LIST}")
        log.warning("damaged list of checkpoints replaced", extra={"fields": {"run": name, "resumes_from": newest}})
    return newest


def remove_strays(files: FileSystem, run: str) -> None:
    """Delete incomplete checkpoints of interrupted runs; requires a valid list and no running worker."""
    listed = _listed(files, f"{run}/{CHECKPOINT_LIST}") or set()
    for path in _folders(files, run):
        if listed and path.rpartition("/")[2] not in listed:
            files.delete_dir(path)


def _folders(files: FileSystem, run: str) -> list[str]:
    found = files.get_file_info(FileSelector(run, allow_not_found=True))
    return [one.path for one in found if one.type == FileType.Directory and one.base_name.startswith(CHECKPOINT_PREFIX)]


def _listed(files: FileSystem, path: str) -> set[str] | None:
    """Return the folder names in the list; None: the list is missing or damaged."""
    found = _read_json(files, path)
    try:
        return None if found is None else listed_checkpoints(found)
    except (KeyError, TypeError):
        return None


def _step_of_complete(files: FileSystem, folder: str, name: str) -> int | None:
    """Return the step of a complete checkpoint of the stage; None: of another stage, or incomplete."""
    record = _read_json(files, f"{folder}/{RECORD_FILE}")
    if record is None or record["name"] != name:
        return None
    parts = [FileDigest.from_json(file) for file in record["files"]]
    return int(record["step"]) if all(_size(files, f"{folder}/{one.path}") == one.size for one in parts) else None


def _size(files: FileSystem, path: str) -> int | None:
    (found,) = files.get_file_info([path])
    return found.size if found.type == FileType.File else None


def _read_json(files: FileSystem, path: str) -> Any:
    """Return the content of a JSON file; None: it is missing or damaged."""
    if _size(files, path) is None:
        return None
    with files.open_input_stream(path) as stream:
        data: pa.Buffer = stream.read()
    try:
        return json.loads(data)
    except ValueError:
        return None
