"""File system of checkpoints: Ray Train writes through pyarrow, while the rest of a job uses obstore."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.fs

from lsr_prod.credentials import without_credentials
from lsr_prod.errors import ConfigError, StorageError
from lsr_prod.logs import get_log
from lsr_prod.storage import Store, is_remote
from lsr_prod.storage.disk import scratch_folder
from lsr_prod.storage.options import options_of

log = get_log(__name__)

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
        raise ConfigError(
            "train.work",
            f"Ray Train cannot write checkpoints to {scheme}://",
            "use s3://, gs:// or a folder that all machines share",
        )
    if unknown := sorted(options_of(work.uri, work.options).keys() - _KNOWN[scheme]):
        raise ConfigError(
            f"storage.options.{unknown[0]}", "Ray Train cannot write checkpoints with this option", "leave it out"
        )


def file_system(work: Store) -> pyarrow.fs.FileSystem | None:
    """Return the file system for checkpoints; None: the local disk."""
    if not is_remote(work.uri):
        return None
    if not work.uri.startswith("s3://"):
        return pyarrow.fs.FileSystem.from_uri(work.uri)[0]
    return _S3Files(options_of(work.uri, work.options))


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
    with scratch_folder(prefix="checkpoint-") as scratch:
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
            message = without_credentials(str(error))
            if attempt == _TRIES or isinstance(error, FileNotFoundError):
                raise StorageError(
                    f"the checkpoint {checkpoint.path} could not be fetched in {attempt} attempts ({message}); check "
                    "train.work, then run the job again"
                ) from error
            fields = {"checkpoint": checkpoint.path, "attempt": attempt, "error": message}
            log.warning("checkpoint not fetched", extra={"fields": fields})
            time.sleep(0.5 * 2**attempt)
            shutil.rmtree(target, ignore_errors=True)
            attempt += 1
