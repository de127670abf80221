"""Token of a local Ray cluster, in a file that only its user can read."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lsr_prod.errors import ConfigError

__all__ = ["prepare_token"]

_BYTES = 32


def prepare_token(environment: Mapping[str, str] = os.environ) -> None:
    """Create the token file of Ray if a local cluster would otherwise create it.

    Ray creates ``~/.ray/auth_token`` with the permissions of the umask, often readable by all users of the machine.
    The token is the only check between a listener of Ray and the execution of pickled code.

    Args:
        environment: variables of the process; an explicit mode or token of Ray is left as it is.

    Raises:
        ConfigError: the home folder cannot be written.
    """
    if environment.get("RAY_AUTH_MODE", "token").lower() != "token":
        return
    if environment.get("RAY_AUTH_TOKEN") or environment.get("RAY_AUTH_TOKEN_PATH"):
        return
    path = Path.home() / ".ray" / "auth_token"
    try:
        if not path.exists():
            _create(path)
    except OSError as error:
        raise ConfigError(
            "RAY_AUTH_TOKEN_PATH",
            f"the token of a local Ray cannot be created at {path}: {error.strerror}",
            "set it to a file with a token, or set HOME to a folder that can be written",
        ) from error


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mkstemp creates with mode 600. The link is atomic: no process reads half a token, and one of two processes wins.
    descriptor, draft = tempfile.mkstemp(prefix=".auth_token-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(os.urandom(_BYTES).hex())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        Path(draft).unlink()
