"""The packages that the locks in ``requirements/`` install."""

import re
from pathlib import Path

__all__ = ["IMAGES", "LOCKS", "ROOT", "Package", "locked", "locked_by", "normalized"]

ROOT = Path(__file__).parents[2]

Package = tuple[str, str]
"""Normalized name and version."""

IMAGES = ("search", "jobs", "cuda")
"""Environments that are images."""

LOCKS = {
    "search": ("search.txt",),
    "jobs": ("jobs.txt",),
    "cuda": ("cuda.txt",),
    "core": ("core.txt",),
    "build": ("build.txt",),
    "dev": ("dev.txt", "torch-cpu.txt"),
    "audit": ("audit.txt",),
    "optimum": ("optimum.txt", "torch-cpu.txt"),
    "peers": ("peers.txt",),
}
"""Locks of each environment that a target of the Makefile or an image installs."""

_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")


def normalized(name: str) -> str:
    """Return the name of a package as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(environment: str) -> set[Package]:
    """Return name and version of every package of an environment.

    Raises:
        ValueError: a line of a lock names a package without its version.
    """
    found = set()
    for file in LOCKS[environment]:
        for line in (ROOT / "requirements" / file).read_text().splitlines():
            if not line or line[0] in " #":  # hashes and comments
                continue
            pin = _PIN.match(line)
            if pin is None:
                raise ValueError(f"requirements/{file}: {line!r} does not give name==version; run make lock")
            found.add((normalized(pin[1]), pin[2]))
    return found


def locked_by() -> dict[Package, list[str]]:
    """Return the environments of every locked package, packages in the order of their names."""
    found: dict[Package, list[str]] = {}
    for environment in LOCKS:
        for package in locked(environment):
            found.setdefault(package, []).append(environment)
    return dict(sorted(found.items()))
