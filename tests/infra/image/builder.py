"""Build images with buildah on a base that debootstrap makes; everything is kept in one folder.

Packages are downloaded once, by hash, with the configuration of pip of this machine. The build reads them from a folder
and reaches no index.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.rights import why_not_root

__all__ = ["ROOT", "Builder", "missing"]

ROOT = Path(__file__).parents[3]
PYTHON = (3, 11)  # of Debian 12
_SUITE = "bookworm"
_PACKAGES = "ca-certificates,python3,python3-venv"
_PIP = "[global]\nno-index = true\nfind-links = /packages\n"
# A constant, so that two builds of the same sources are equal.
_TIMESTAMP = "315532800"


def missing() -> str:
    """Return why images cannot be built on this computer, or ""."""
    if reason := why_not_root():
        return reason
    absent = [tool for tool in ("buildah", "debootstrap", "unshare", "chroot") if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} is not installed (packages buildah and debootstrap of Debian)"
    if sys.version_info[:2] != PYTHON:
        return f"packages are downloaded for the Python that runs this, and the base has {PYTHON[0]}.{PYTHON[1]}"
    return ""


class Builder:
    """Builds images and opens their root file systems.

    Attributes:
        folder: base, packages and storage of the images.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "packages").mkdir(parents=True, exist_ok=True)
        (folder / "pip.conf").write_text(_PIP)
        where = ["--root", str(folder / "storage"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]
        self._buildah = ["buildah", *where]

    def make_base(self) -> str:
        """Return the name of the base image; its root file system is made once."""
        tar = self.folder / f"{_SUITE}.tar"
        if not tar.is_file():
            root, draft = self.folder / "base", tar.with_suffix(".draft")
            shutil.rmtree(root, ignore_errors=True)
            _run(["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root)])
            _run(["tar", "--create", "--file", str(draft), "--directory", str(root), "--exclude=./var/cache/*", "."])
            shutil.rmtree(root)
            draft.rename(tar)
        context = self.folder / "context"
        context.mkdir(exist_ok=True)
        (context / "Dockerfile").write_text(f"FROM scratch\nADD {tar.name} /\n")
        if not (context / tar.name).exists():
            os.link(tar, context / tar.name)
        name = "localhost/lsr-prod/base"
        self._call("build", "--quiet", "--timestamp", _TIMESTAMP, "--tag", name, str(context))
        return name

    def download(self, lock: str) -> None:
        """Download the packages of ``requirements/<lock>.txt``; what is there already is only verified."""
        pip = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"]
        packages = str(self.folder / "packages")
        only = ["--require-hashes", "--only-binary", ":all:", "--find-links", packages, "--dest", packages]
        _run([*pip, *only, "--requirement", str(ROOT / "requirements" / f"{lock}.txt")])

    def build(self, target: str, base: str, revision: str, *, tag: str = "latest") -> str:
        """Build a target of the Dockerfile; returns the name of the image.

        Stages are not cached: every cached instruction would cost a copy of the root file system.
        """
        name = f"localhost/lsr-prod/{target}:{tag}"
        self._call(
            *("build", "--quiet", "--format", "docker", "--target", target, "--timestamp", _TIMESTAMP, "--tag", name),
            *("--build-arg", f"BASE={base}", "--build-arg", f"REVISION={revision}"),
            *("--secret", f"id=pip,src={self.folder / 'pip.conf'}"),
            *("--volume", f"{self.folder / 'packages'}:/packages:ro"),
            str(ROOT),
        )
        return name

    def inspect(self, image: str) -> dict[str, Any]:
        """Return the configuration of an image."""
        shown: dict[str, Any] = json.loads(self._call("inspect", "--type", "image", image))["Docker"]
        return shown

    @contextmanager
    def mounted(self, image: str) -> Iterator[Path]:
        """Yield the folder of the root file system of a container of the image."""
        container = self._call("from", "--pull-never", image).strip()
        try:
            yield Path(self._call("mount", container).strip())
        finally:
            self._call("rm", container)

    def clean(self) -> None:
        """Delete the storage of images; base and packages stay."""
        self._call("rm", "--all")
        self._call("rmi", "--all", "--force")

    def _call(self, command: str, *arguments: str) -> str:
        return _run([*self._buildah, command, *arguments])


def _run(command: list[str]) -> str:
    settings = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    done = subprocess.run(command, env=settings, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.stdout.write(done.stdout[-4000:])
        raise SystemExit(f"{command[0]} ended with exit code {done.returncode}: {' '.join(command[:8])} ...")
    return done.stdout
