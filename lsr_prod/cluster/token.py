"""Token of Ray: the mode of this process, the token that it sends, and the token file of a local cluster."""

import errno
import os
import stat
import tempfile
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

from lsr_prod.errors import ConfigError, DiskFullError
from lsr_prod.logs import get_log
from lsr_prod.storage.disk import disk_error
from lsr_prod.storage.local import home_folder

log = get_log(__name__)
_BYTES = 32
_MODES = ("token", "disabled")


def resolve_mode(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Set ``RAY_AUTH_MODE`` to ``token`` unless it is set; return whether the process demands and sends a token.

    Ray itself demands no token if the variable is unset when a node starts, or has a value that it does not know.
    """
    given = environment.get("RAY_AUTH_MODE")
    if not given:
        environment["RAY_AUTH_MODE"] = "token"
        return True
    mode = given.lower()
    if mode not in _MODES:
        raise ConfigError(
            "RAY_AUTH_MODE", f"{given!r} is not a mode, and Ray would demand no token", "unset it, or set it to token"
        )
    if mode == "disabled":
        log.warning("Ray demands no token", extra={"fields": {"RAY_AUTH_MODE": given}})
    return mode == "token"


def read_token(environment: Mapping[str, str] = os.environ) -> str:
    """Return the token that Ray sends: ``RAY_AUTH_TOKEN``, else the file ``RAY_AUTH_TOKEN_PATH``, else Ray's file."""
    if token := environment.get("RAY_AUTH_TOKEN", "").strip():
        return token
    given = environment.get("RAY_AUTH_TOKEN_PATH")
    path = Path(given) if given else _own_path()
    try:
        token = path.read_text(encoding="ascii").strip()
        problem = f"{path} is empty"
    except (OSError, UnicodeDecodeError) as error:
        token, problem = "", f"there is no token in {path}: {getattr(error, 'strerror', None) or 'it is not text'}"
    if not token:
        raise ConfigError(
            "RAY_AUTH_TOKEN_PATH", problem, "set it to a file with the token of the cluster, readable by this user only"
        )
    return token


def prepare_token(environment: Mapping[str, str] = os.environ) -> None:
    """Create the token file of Ray if no token is set, and keep it from other users.

    Ray creates ``~/.ray/auth_token`` with the permissions of the umask, often readable by all users of the machine.
    The token is the only check between a listener of Ray and the execution of pickled code.
    """
    if environment.get("RAY_AUTH_TOKEN") or environment.get("RAY_AUTH_TOKEN_PATH"):
        return
    path = _own_path()
    try:
        if not path.exists():
            _create(path)
        elif stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)
    except OSError as error:
        full = disk_error(error, path)
        if isinstance(full, DiskFullError) and error.errno != errno.EROFS:  # a read-only HOME is a setting
            raise full from error
        raise ConfigError(
            "RAY_AUTH_TOKEN_PATH",
            f"the token of a local Ray cannot be created at {path}: {error.strerror}",
            "set it to a file with a token, or set HOME to a folder that can be written",
        ) from error


def _own_path() -> Path:
    return home_folder("RAY_AUTH_TOKEN_PATH") / ".ray" / "auth_token"


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
