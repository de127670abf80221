"""Where Ray Train writes checkpoints: through a file system of Arrow's, when the rest of a job takes obstore."""

import pyarrow.fs

from lsr_prod.errors import ConfigError
from lsr_prod.storage import Store, is_remote

__all__ = ["check_work", "file_system"]

_ENDPOINTS = ("endpoint", "endpoint_url")
_REGIONS = ("region", "default_region")
_KNOWN = {"s3": {*_ENDPOINTS, *_REGIONS, "allow_http", "skip_signature"}, "gs": set[str]()}


def check_work(work: Store) -> None:
    """Refuse a work store that checkpoints cannot be written to as everything else is.

    Raises:
        ConfigError: Arrow does not know its kind, or has no counterpart of one of its options.
    """
    if not is_remote(work.uri):
        return
    scheme = work.uri.partition("://")[0]
    if scheme not in _KNOWN:
        raise ConfigError(
            "train.work",
            f"Ray Train writes no checkpoints to {scheme}://",
            "name s3://, gs:// or a folder of all machines",
        )
    if unknown := sorted(name for name in work.options if _plain(name) not in _KNOWN[scheme]):
        raise ConfigError(
            f"storage.options.{unknown[0]}", "checkpoints of a training cannot be written with it", "leave it out"
        )


def file_system(work: Store) -> pyarrow.fs.FileSystem | None:
    """What Ray Train writes checkpoints through; None is the local disk.

    Args:
        work: checked by ``check_work``.
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
    """obstore takes every option with and without the prefix, in any case."""
    return name.lower().removeprefix("aws_")
