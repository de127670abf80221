"""Folder of this user for the files of a local Ray: sessions, sockets and locks.

By default Ray keeps them in ``/tmp/ray`` and ``/tmp/_ray_lockfiles``, which belong to the first user of Ray on the
machine: another user can lock nothing there, and every user can write into a session.
"""

import hashlib
import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lsr_prod.errors import ConfigError

_VARIABLE = "RAY_TMPDIR"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


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
    sys.executable = str(link / Path(path).relative_to(environment))
    try:
        yield
    finally:
        sys.executable = path


def _belongs_to(folder: Path, user: int) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & _OTHERS_WRITE
