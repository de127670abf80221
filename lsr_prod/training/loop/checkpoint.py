"""A checkpoint of a stage: tensors in safetensors, everything else in JSON, each file with its sha256.

::

    checkpoint.json       step, digest of the stage, state other than tensors, and the digest of every other file
    weights.safetensors   the trained parameters
    <part>.safetensors    optimizer, best weights, term counts, momentum queue
    steps.jsonl           reports so far

A checkpoint has no random state and no data cursor: order, samples and dropout are functions of the step.
"""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs
from safetensors.torch import load_file, save_file
from torch import Tensor

from lsr_prod import errors, logs
from lsr_prod.storage import Store, disk, drafts, is_remote, location
from lsr_prod.storage.formats.digests import FileDigest, digest_files, read_record, record_bytes, verify_files

log = logs.get_log(__name__)

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
    record = {
        "format": _FORMAT,
        "name": name,
        "step": checkpoint.step,
        "state": checkpoint.state,
        "files": [file.to_json() for file in digest_files(folder, folder.iterdir())],
    }
    drafts.write_file(folder / RECORD_FILE, record_bytes(record))


def read_checkpoint(folder: Path, *, name: str) -> Checkpoint:
    """Read and verify a checkpoint."""
    record = read_record(folder / RECORD_FILE, dict, "delete the folder of the run to start again")
    if record["format"] != _FORMAT or record["name"] != name:
        raise errors.LineageError(f"{folder} is a checkpoint of stage {record['name']}, not of {name}; delete it")
    files = [FileDigest.from_json(file) for file in record["files"]]
    verify_files(folder, files)
    parts = [file.path.removesuffix(".safetensors") for file in files if file.path.endswith(".safetensors")]
    tensors = {part: load_file(folder / f"{part}.safetensors") for part in parts}
    return Checkpoint(int(record["step"]), tensors, record["state"])


_TRIES = 6
_CHUNK = 64 << 20  # bytes of one read, as of Ray
_KNOWN = {
    "s3": {"aws_endpoint", "aws_region", "aws_default_region", "aws_skip_signature", "allow_http"},
    "gs": set[str](),
}


def check_work(work: Store) -> None:
    """Reject a work store to which Ray Train cannot write checkpoints."""
    if not is_remote(work.uri):
        return
    scheme = work.uri.partition("://")[0]
    if scheme not in _KNOWN:
        problem = f"Ray Train cannot write checkpoints to {scheme}://"
        raise errors.ConfigError("train.work", problem, "use s3://, gs:// or a folder that all machines share")
    if unknown := sorted(location.options_of(work.uri, work.options).keys() - _KNOWN[scheme]):
        raise errors.ConfigError(
            f"storage.options.{unknown[0]}", "Ray Train cannot write checkpoints with this option", "leave it out"
        )


def file_system(work: Store) -> pyarrow.fs.FileSystem | None:
    """Return the file system for checkpoints; None: the local disk."""
    if not is_remote(work.uri):
        return None
    if not work.uri.startswith("s3://"):
        return pyarrow.fs.FileSystem.from_uri(work.uri)[0]
    return _S3Files(location.options_of(work.uri, work.options))


class _S3Files(pyarrow.fs.S3FileSystem):  # type: ignore[misc]  # pyarrow has no types
    """File system of an S3 service; the copies that Ray sends to its processes are made from the same options.

    By default the library behind pyarrow appends a checksum to the content and sends it without a length, which Ceph
    16.2 refuses (411). The library takes this setting from the environment only.
    """

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        if "aws_endpoint" in options:
            os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        scheme, _, host = options.get("aws_endpoint", "").rpartition("://")
        super().__init__(
            region=options.get("aws_region") or options.get("aws_default_region"),
            endpoint_override=host.rstrip("/") or None,
            scheme=scheme or "https",
            anonymous=options.get("aws_skip_signature") == "true",
        )

    def __reduce__(self) -> tuple[type["_S3Files"], tuple[dict[str, str]]]:
        return _S3Files, (self._options,)


@contextmanager
def open_checkpoint(checkpoint: Any) -> Iterator[Path]:
    """Open a checkpoint of Ray Train as a local folder; a fetch that fails is repeated.

    pyarrow gives up the whole fetch if a busy store interrupts or refuses one of its answers. Every fetch has a folder
    of its own: the folder of ``Checkpoint.as_directory`` keeps the files of a failed fetch, and other processes of the
    node read it. Nothing is locked: the locks of ``Checkpoint`` are in a folder that may belong to another user.
    """
    if isinstance(checkpoint.filesystem, pyarrow.fs.LocalFileSystem):
        yield Path(checkpoint.path)
        return
    with disk.scratch_folder(prefix="checkpoint-") as scratch:
        yield _fetch(checkpoint, scratch)


def _fetch(checkpoint: Any, scratch: Path) -> Path:
    attempt = 1
    while True:
        target = scratch / str(attempt)
        target.mkdir()
        try:
            pyarrow.fs.copy_files(
                checkpoint.path, str(target), source_filesystem=checkpoint.filesystem, chunk_size=_CHUNK
            )
            return target
        except OSError as error:
            message = logs.without_credentials(str(error))
            if attempt == _TRIES or isinstance(error, FileNotFoundError):
                raise errors.StorageError(
                    f"the checkpoint {checkpoint.path} could not be fetched in {attempt} attempts ({message}); check "
                    "train.work, then run the job again"
                ) from error
            fields = {"checkpoint": checkpoint.path, "attempt": attempt, "error": message}
            log.warning("checkpoint not fetched", extra={"fields": fields})
            time.sleep(0.5 * 2**attempt)
            shutil.rmtree(target, ignore_errors=True)
            attempt += 1
