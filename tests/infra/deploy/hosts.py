"""Machines as a new platform engineer has them: bare hosts that root reaches by ssh, and a computer with a checkout.

A host is a machine of ``tests.cluster.namespaces`` with folders of its own where an installation writes, and packages
from a folder in place of an index. Stand-ins: ``ssh`` enters the namespaces of the host, and ``systemctl`` runs
what the units say. Everything else is the program of the host.
"""

import shlex
import subprocess
import sys
from pathlib import Path

from tests.cluster.namespaces import ROOT, Machine, Network

__all__ = ["SEARCH", "Hosts"]

SEARCH = "/tmp/home/search"
_CHECKOUT = "/tmp/home/lsr-prod"
_TOOLS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PREPARE = """
set -e
cp -a /etc /tmp/etc
mount --bind /tmp/etc /etc
for folder in /srv /var/lib /var/cache /usr/local/bin; do mount -t tmpfs -o mode=755 tmpfs $folder; done
mount --bind {opt} /opt
mount -o remount,bind,rw /opt
mkdir /tmp/python
mount --bind {python} /tmp/python
mount -t tmpfs -o mode=755 tmpfs {closed}
mkdir -p {python}
mount --bind /tmp/python {python}
cat > /etc/pip.conf <<END
[global]
no-index = true
find-links = {packages}
END
cp {stand_in} /usr/local/bin/stand_in.py
for tool in systemctl journalctl; do
    printf '#!/bin/sh\\nexec {python}/bin/python3 /usr/local/bin/stand_in.py %s "$@"\\n' $tool > /usr/local/bin/$tool
done
chmod 755 /usr/local/bin/*
"""


class Hosts:
    """The hosts of a network, and the computer that a person sits at.

    Attributes:
        computer: has a checkout in ``~/lsr-prod`` and the folder ``~/search``.
    """

    def __init__(self, network: Network, names: list[str], packages: Path, opt: Path) -> None:
        """Make the hosts.

        Args:
            network: where the machines are added; those that it has keep their names.
            names: hosts that ssh reaches, as ``<name>.internal``.
            packages: folder of the packages of the locks.
            opt: folder of this computer, not below ``/tmp``, that is ``/opt`` on all hosts.
        """
        self._path = f"/usr/local/bin:{sys.base_prefix}/bin:{_TOOLS}"
        others = list(network.machines.values())
        hosts = [network.add(name) for name in names]
        self.computer = network.add("computer")
        lines = [f"{machine.address} {machine.name}.internal {machine.name}" for machine in [*others, *hosts]]
        for machine in [*hosts, self.computer]:
            self._prepare(machine, packages, opt)
            machine.write("/etc/hosts", "\n".join(["127.0.0.1 localhost", *lines, ""]))
        self._add_ssh(hosts)
        self._add_checkout()

    def run(self, script: str, log: Path, timeout_s: float) -> "subprocess.CompletedProcess[str]":
        """Run a bash script on the computer; its output goes to a file too."""
        environment = {"PATH": self._path, "PYTHONPATH": _CHECKOUT, "HF_HUB_OFFLINE": "1", "LANG": "C.UTF-8"}
        shell = ["bash", "-c", f"exec 2>&1 < /dev/null\n{script}"]
        done = self.computer.run(shell, environment, timeout_s=timeout_s)
        log.write_text(done.stdout)
        return done

    def _prepare(self, machine: Machine, packages: Path, opt: Path) -> None:
        python = Path(sys.base_prefix)
        closed = [folder for folder in python.parents if not folder.stat().st_mode & 0o001]
        script = _PREPARE.format(
            opt=opt,
            packages=packages,
            python=python,
            closed=closed[-1] if closed else "/mnt",
            stand_in=shlex.quote(str(Path(__file__).with_name("systemctl.py"))),
        )
        _check(machine.run(["sh", "-c", script]))

    def _add_ssh(self, hosts: list[Machine]) -> None:
        cases = []
        for host in hosts:
            enter = shlex.join(host.inside(["sh", "-c"], {"PATH": self._path, "HOME": "/root", "LANG": "C.UTF-8"}))
            cases.append(f'root@{host.name}.internal) shift; exec {enter} "$*" ;;')
        lines = ["#!/bin/sh", "case $1 in", *cases, '*) echo "ssh: no host $1" >&2; exit 255 ;;', "esac", ""]
        self.computer.write("/usr/local/bin/ssh", "\n".join(lines))
        _check(self.computer.run(["chmod", "755", "/usr/local/bin/ssh"]))

    def _add_checkout(self) -> None:
        """Copy the files of this checkout as a repository with one commit; its environment is that of this program."""
        git = "git -c user.name=test -c user.email=test@localhost"
        script = f"""
        set -e
        mkdir -p {_CHECKOUT} {SEARCH}
        cd {shlex.quote(str(ROOT))}
        git -c safe.directory='*' ls-files -z --cached --others --exclude-standard > /tmp/files
        tar -c --null --files-from /tmp/files | tar -x -C {_CHECKOUT}
        cd {_CHECKOUT}
        git init -q
        git add --all
        {git} commit -q -m "A release"
        ln -s {shlex.quote(sys.prefix)} .venv
        """
        _check(self.computer.run(["sh", "-c", script]))


def _check(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 0, done.stderr
