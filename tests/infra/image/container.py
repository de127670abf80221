"""Run a program in an image as an orchestrator would: not as root, on a read-only root file system, without a network.

Its namespaces have a loopback interface only. Writable are ``/tmp`` and ``/dev/shm``, in memory, and ``/mnt``, a folder
of this machine. No capability is left, and none can be gained.
"""

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Container"]

_SETUP = """
set -e
root={root}
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero random urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount --bind {data} "$root/mnt"
mount -o remount,bind,ro "$root"
ip link set lo up
exec env --ignore-environment {environment} chroot "$root" setpriv --reuid {user} --regid {group} --clear-groups \
    --no-new-privs --inh-caps=-all --bounding-set=-all sh -c {command}
"""


class Container:
    """A root file system with the configuration of its image.

    Attributes:
        user: numeric user id of its processes.
    """

    def __init__(self, root: Path, config: Mapping[str, Any], data: Path) -> None:
        """Prepare to run programs.

        Args:
            root: the root file system.
            config: ``config`` of the image: user, environment, working directory.
            data: becomes ``/mnt``.
        """
        self._root, self._config, self._data = root, config, data
        user, _, group = str(config["User"]).partition(":")
        self.user, self._group = int(user), int(group)

    def run(
        self, *command: str, environment: Mapping[str, str] | None = None, stdin: str = "", timeout: int = 900
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end; returns its output, whatever its exit code is.

        Processes that it leaves behind end with it, because they are in its namespace of process ids.
        """
        variables = [*self._config["Env"], *(f"{name}={value}" for name, value in (environment or {}).items())]
        inside = f"cd {shlex.quote(self._config['WorkingDir'])} && exec {shlex.join(command)}"
        setup = _SETUP.format(
            root=shlex.quote(str(self._root)),
            data=shlex.quote(str(self._data)),
            environment=shlex.join(variables),
            user=self.user,
            group=self._group,
            command=shlex.quote(inside),
        )
        spaces = ["--mount", "--net", "--pid", "--ipc", "--uts"]
        process = subprocess.Popen(
            ["unshare", *spaces, "--fork", "--kill-child", "sh", "-c", setup],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)
