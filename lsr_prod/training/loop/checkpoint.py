"""A checkpoint of a stage: tensors in safetensors, everything else in JSON, each file with its sha256.

::

    checkpoint.json       step, settings' digest, states that are no tensors, and the digest of every other file
    weights.safetensors   the trained parameters
    <part>.safetensors    optimizer, best weights, counts of terms, queue of negatives, slow copy
    steps.jsonl           the reports so far

There is no state of random numbers and no cursor but the step: order, draws and dropout are functions of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from lsr_prod.errors import LineageError
from lsr_prod.formats.digest import FileDigest, digest_files, read_record, record_bytes, verify_files
from lsr_prod.storage.drafts import write_file

__all__ = ["RECORD_FILE", "REPORTS_FILE", "Checkpoint", "read_checkpoint", "write_checkpoint"]

REPORTS_FILE = "steps.jsonl"
RECORD_FILE = "checkpoint.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a stage goes on from.

    Attributes:
        step: steps that are done.
        tensors: by part, then by name; on the CPU.
        state: what is no tensor.
    """

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]


def write_checkpoint(folder: Path, checkpoint: Checkpoint, *, name: str) -> None:
    """Write a checkpoint into an existing folder; ``checkpoint.json`` comes last.

    Args:
        folder: may hold ``steps.jsonl`` already.
        checkpoint: what is written.
        name: digest of the stage that it belongs to.
    """
    for part, tensors in checkpoint.tensors.items():
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"{part}.safetensors")
    files = digest_files(folder, folder.iterdir())
    record = {
        "format": _FORMAT,
        "name": name,
        "step": checkpoint.step,
        "state": checkpoint.state,
        "files": [file.to_json() for file in files],
    }
    write_file(folder / RECORD_FILE, record_bytes(record))


def read_checkpoint(folder: Path, *, name: str) -> Checkpoint:
    """Read and verify a checkpoint.

    Raises:
        ArtifactError: a file is missing, or the record is damaged.
        DigestMismatchError: a file's bytes are not those that were written.
        LineageError: it belongs to another stage.
    """
    record = read_record(folder / RECORD_FILE, dict, "remove the run's folder to start it anew")
    if record["format"] != _FORMAT or record["name"] != name:
        raise LineageError(f"{folder} is a checkpoint of stage {record['name']}, not of {name}; remove it")
    files = [FileDigest.from_json(file) for file in record["files"]]
    verify_files(folder, files)
    parts = [file.path.removesuffix(".safetensors") for file in files if file.path.endswith(".safetensors")]
    tensors = {part: load_file(folder / f"{part}.safetensors") for part in parts}
    return Checkpoint(int(record["step"]), tensors, record["state"])
