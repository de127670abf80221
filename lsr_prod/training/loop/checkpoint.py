"""A checkpoint of a stage: tensors in safetensors, everything else in JSON, each file with its sha256.

::

    checkpoint.json       step, digest of the stage, state other than tensors, and the digest of every other file
    weights.safetensors   the trained parameters
    <part>.safetensors    optimizer, best weights, term counts, momentum queue
    steps.jsonl           reports so far

A checkpoint has no random state and no data cursor: order, samples and dropout are functions of the step.
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

REPORTS_FILE = "steps.jsonl"
RECORD_FILE = "checkpoint.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """State of a stage to resume from."""

    step: int  # completed steps
    tensors: Mapping[str, Mapping[str, Tensor]]  # tensors by part, then by name; on the CPU
    state: Mapping[str, Any]  # state other than tensors, as JSON values


def write_checkpoint(folder: Path, checkpoint: Checkpoint, *, name: str) -> None:
    """Write a checkpoint; ``checkpoint.json`` is written last."""
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
    """Read and verify a checkpoint."""
    record = read_record(folder / RECORD_FILE, dict, "delete the folder of the run to start again")
    if record["format"] != _FORMAT or record["name"] != name:
        raise LineageError(f"{folder} is a checkpoint of stage {record['name']}, not of {name}; delete it")
    files = [FileDigest.from_json(file) for file in record["files"]]
    verify_files(folder, files)
    parts = [file.path.removesuffix(".safetensors") for file in files if file.path.endswith(".safetensors")]
    tensors = {part: load_file(folder / f"{part}.safetensors") for part in parts}
    return Checkpoint(int(record["step"]), tensors, record["state"])
