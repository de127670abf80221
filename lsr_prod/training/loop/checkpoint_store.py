"""File system of checkpoints: Ray Train writes through pyarrow, while the rest of a job uses obstore."""

import pyarrow.fs

from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store, is_remote

__all__ = ["check_work", "file_system"]

_ENDPOINTS = ("endpoint", "endpoint_url")
_REGIONS = ("region", "default_region")
_KNOWN = {"s3": {*_ENDPOINTS, *_REGIONS, "allow_http", "skip_signature"}, "gs": set[str]()}


def check_work(work: Store) -> None:
    """Reject a work store to which Ray Train cannot write checkpoints.

    Raises:
        ConfigError: pyarrow does not support the scheme, or has no counterpart of an option.
    """
    if not is_remote(work.uri):
        return
    scheme = work.uri.partition("://")[0]
    if scheme not in _KNOWN:
        raise ConfigError(
            "train.work",
            f"Ray Train cannot write checkpoints to {scheme}://",
            "use s3://, gs:// or a folder that all machines share",
        )
    if unknown := sorted(name for name in work.options if _plain(name) not in _KNOWN[scheme]):
        raise ConfigError(
            f"storage.options.{unknown[0]}", "Ray Train cannot write checkpoints with this option", "leave it out"
        )


def file_system(work: Store) -> pyarrow.fs.FileSystem | None:
    """Return the file system for checkpoints; None: the local disk.

    Args:
        work: a work store that ``check_work`` accepted.
    """
    if not is_remote(work.uri):
        return None
    if not work.uri.startswith("s3://"):
        return pyarrow.fs.FileSystem.from_uri(work.uri)[0]
    options = {_plain(name): value for name, value in work.options.items()}
    endpoint = next((options[name] for name in _ENDPOINTS if name in options), "")
    scheme, _, host = endpoint.rpartition("://")
    return pyarrow.fs.S3FileSystem(
        region=next((options[name] for name in _REGIONS if name in options), None),
        endpoint_override=host or None,
        scheme=scheme or "https",
        anonymous=options.get("skip_signature", "").lower() in ("true", "1"),
    )


def _plain(name: str) -> str:
    """Normalize the name of an option: obstore accepts it with and without prefix, in any case."""
    return name.lower().removeprefix("aws_")
