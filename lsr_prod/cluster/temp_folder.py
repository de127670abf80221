"""Folder of a local Ray: it can be written, and the names of the sockets in it have a bounded length."""

import os
from collections.abc import Mapping
from pathlib import Path

from lsr_prod.config import RaySettings
from lsr_prod.errors import ConfigError

_LONGEST = 107  # bytes in the name of a Unix socket on Linux
_BELOW = "/ray/session_2026-01-31_23-59-59_123456_{pid}/sockets/plasma_store"


def cluster_address(settings: RaySettings, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the address of the cluster to connect to; None: a local one is started."""
    address = settings.address or environment.get("RAY_ADDRESS")
    return None if address == "local" else address


def check_temp_folder(settings: RaySettings, environment: Mapping[str, str] = os.environ) -> None:
    """Check that a local Ray, if the settings ask for one, can have its sockets in the folder of the environment."""
    name = next((name for name in ("RAY_TMPDIR", "TMPDIR") if name in environment), None)
    if name is None or cluster_address(settings, environment) is not None:
        return
    length, most = len(os.fsencode(environment[name])), _LONGEST - len(_BELOW.format(pid=os.getpid()))
    if length > most:
        raise ConfigError(
            name,
            f"its value has {length} bytes, and the sockets of Ray below it would have longer names than the "
            f"{_LONGEST} bytes that the system allows",
            f"set RAY_TMPDIR to a folder of your own whose name has at most {most} bytes",
        )
    if name == "RAY_TMPDIR":  # Python passes over a TMPDIR that cannot be used
        folder = Path(environment[name]).absolute()
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
            raise ConfigError(name, f"files cannot be created in {existing}", "set it to a folder that you can write")
