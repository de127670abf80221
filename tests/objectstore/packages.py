"""The Debian packages of Ceph's RADOS gateway: installed on request, otherwise the reason why they are not."""

import os
import shutil
import subprocess

__all__ = ["install", "missing"]

_PACKAGES = ("radosgw", "ceph-mon", "ceph-mgr", "ceph-osd", "ceph-common")
_PROGRAMS = ("radosgw", "radosgw-admin", "ceph", "ceph-authtool", "ceph-mgr", "ceph-mon", "ceph-osd", "monmaptool")


def missing() -> str:
    """Return why the gateway cannot be started on this computer, or ""."""
    absent = [program for program in _PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"{', '.join(absent)} is not installed; run apt-get install {' '.join(_PACKAGES)}"
    return ""


def install() -> str:
    """Install the packages if they are absent; return why that failed, or ""."""
    if not missing():
        return ""
    if shutil.which("apt-get") is None:
        return f"apt-get is absent, so that {', '.join(_PACKAGES)} cannot be installed"
    if os.geteuid() != 0:
        return missing()
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    add = ["apt-get", "install", "--yes", "-qq", "--no-install-recommends", *_PACKAGES]
    for command in (["apt-get", "update", "-qq"], add):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{' '.join(command)} ended with exit code {done.returncode}: {done.stderr.strip()[-500:]}"
    return missing()
