"""Connection to Ray: the cluster of the job, or a local one that listens on loopback only.

``own_folder`` is the folder of this user for the files of a local Ray: sessions, sockets and locks.

By default Ray keeps them in ``/tmp/ray`` and ``/tmp/_ray_lockfiles``, which belong to the first user of Ray on the
machine: another user can lock nothing there, and every user can write into a session.
"""

import hashlib
import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from lsr_prod.cluster.address import check_address, prepare_token, resolve_mode, set_serve_variables
from lsr_prod.config import RaySettings
from lsr_prod.errors import ConfigError, MissingExtraError, WorkerError
from lsr_prod.logs import get_log

log = get_log(__name__)

_VARIABLE = "RAY_TMPDIR"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LONGEST = 107  # bytes in the name of a Unix socket on Linux
_BELOW = "/ray/session_2026-01-31_23-59-59_123456_{pid}/sockets/plasma_store"
_STARTS = 3  # attempts to start a local Ray
_TOO_SLOW = "timed out during startup"


def own_folder() -> Path:
    """Return a temporary folder that only this user writes: ``TMPDIR`` if it is one, else ``lsr-<uid>`` in it."""
    place, user = Path(tempfile.gettempdir()), os.geteuid()
    if _belongs_to(place, user):
        return place
    folder = place / f"lsr-{user}"  # short: it starts the names of sockets
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        problem = "" if _belongs_to(folder, user) else f"{folder} can be written by another user"
    except OSError as error:
        problem = f"{folder} cannot be created ({error.strerror})"
    if problem:
        raise ConfigError(_VARIABLE, problem, "set it to a folder of your own with a short name")
    return folder


@contextmanager
def _replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Replace an attribute for the time of the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def in_own_folder() -> Iterator[None]:
    """Let the Ray that this process starts use the folder of this user, unless ``RAY_TMPDIR`` is set."""
    if os.environ.get(_VARIABLE):
        yield
        return
    os.environ[_VARIABLE] = str(own_folder())
    try:
        yield
    finally:
        del os.environ[_VARIABLE]


@contextmanager
def plain_python() -> Iterator[None]:
    """Let the Ray that this process starts find Python by a name that a shell reads as one word.

    Ray starts a process with variables of its own by a line of a shell in which it does not quote the path of Python.
    If that path has a space, Ray gets the path through a link to the environment in the folder of this user.
    """
    path, environment = sys.executable, Path(sys.prefix)
    if shlex.quote(path) == path or not Path(path).is_relative_to(environment):
        yield
        return
    link = own_folder() / f"python-{hashlib.sha256(os.fsencode(environment)).hexdigest()[:12]}"
    with suppress(FileExistsError):
        link.symlink_to(environment)
    with _replaced(sys, "executable", str(link / Path(path).relative_to(environment))):
        yield


def _belongs_to(folder: Path, user: int) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & _OTHERS_WRITE


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


@contextmanager
def ray_session(settings: RaySettings, *, variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Connect to Ray, and disconnect at the end; a local cluster ends with the session.

    The address is that of the settings, else ``RAY_ADDRESS`` (set by ``ray job submit``), else a local cluster is
    started, with its files in a folder of this user. An existing connection of the process is used and left open.
    ``RAY_AUTH_MODE`` is set to ``token`` unless it is set, and a cluster that demands no token is refused.

    Args:
        settings: the section ``ray``.
        variables: of the environment of the workers of this job, on a cluster; those of a local one inherit the
            environment of this process.

    Raises:
        ConfigError: the address does not answer, or the cluster demands no token or refuses that of this process. Of a
            local cluster, the token cannot be created, or the name of the temporary folder is too long or the folder
            belongs to another user.
        MissingExtraError: Ray is not installed.
        WorkerError: the machine is too busy to start a local cluster.
    """
    # Read by Ray at import. The first makes every listener of a local cluster bind to loopback, which --node-ip-address
    # does not. The second keeps the GPU variables of tasks that reserve no GPU.
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    set_serve_variables()
    # A job that one task ends reports its error. Ray would print tracebacks of the other tasks that failed meanwhile.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "jobs") from error
    if ray.is_initialized():
        yield
        return
    address = cluster_address(settings)
    with in_own_folder() if address is None else nullcontext():
        check_temp_folder(settings)
        _connect(address, settings.num_cpus, variables)
        log.info("connected to Ray", extra={"fields": {"address": address or "local"}})
        try:
            yield
        finally:
            ray.shutdown()


def _connect(address: str | None, num_cpus: int | None, variables: Mapping[str, str] | None) -> None:
    import ray
    from ray._private import ray_constants
    from ray._raylet import Config  # type: ignore[attr-defined]
    from ray.exceptions import AuthenticationError

    token = resolve_mode()
    # Ray may have been imported before the variables were set: read them again.
    ray_constants.ENABLE_RAY_CLUSTER = os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"].lower() in ("1", "true")
    Config.initialize("")
    if address is None and token:
        prepare_token()
    elif address is not None:
        check_address(address, token=token)
    try:
        if address is None:
            _start_local(num_cpus)
        else:
            environment = {"env_vars": dict(variables)} if variables else None
            ray.init(address=address, log_to_driver=False, runtime_env=environment)
    except AuthenticationError as error:
        problem = str(error).partition(". ")[0]
        raise ConfigError("RAY_AUTH_TOKEN_PATH", problem, "set it to a file with the cluster's token") from error
    except (ConnectionError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "Version mismatch" not in str(error):
            raise
        problem = f"Ray does not connect to {address}: {' '.join(str(error).split())}"
        raise ConfigError("ray.address", problem, "check its nodes, its versions and its token") from error


def _start_local(num_cpus: int | None) -> None:
    """Start a local cluster; Ray gives its processes 30 s, which a busy machine may exceed."""
    import ray

    for attempt in range(1, _STARTS + 1):
        try:
            with without_reporter(), plain_python():
                ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, log_to_driver=False)
        except Exception as error:  # Ray raises no class of its own
            if _TOO_SLOW not in str(error):
                raise
            ray.shutdown()
            if attempt == _STARTS:
                raise WorkerError(
                    f"Ray did not start on this machine in {_STARTS} attempts of 30 s; end other programs, or set "
                    "ray.address to a running cluster"
                ) from error
            log.warning("Ray started too slowly", extra={"fields": {"attempt": attempt, "of": _STARTS}})
        else:
            return


@contextmanager
def without_reporter() -> Iterator[None]:
    """Let ``ray.init(include_dashboard=False)`` start no API server, unless RAY_USAGE_STATS_ENABLED is 1.

    Without a dashboard, reports about usage are all that it does. Ray starts it also where reports are off, and it then
    still asks the metadata servers of clouds (the name ``metadata.google.internal``, the address 169.254.169.254) which
    cloud the machine is in.
    """
    from ray._private.node import Node

    if os.environ.get("RAY_USAGE_STATS_ENABLED") == "1":
        yield
        return

    def start_no_server(self: Node, **options: Any) -> None:  # noqa: ARG001 - the signature of Ray
        assert options["include_dashboard"] is False

    with _replaced(Node, "start_api_server", start_no_server):
        yield
