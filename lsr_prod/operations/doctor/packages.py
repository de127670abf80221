"""Installed packages against the versions that lsr_prod needs."""

import sys
from collections.abc import Callable, Iterator
from importlib import metadata

from packaging.requirements import Requirement

from lsr_prod.operations.doctor.finding import Finding

_NAME = "lsr_prod"
_NEWEST = (3, 14)  # exclusive: not tried beyond
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")

Version = Callable[[str], str | None]


def installed_version(name: str) -> str | None:
    """Return the version of an installed package; None: it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> Finding:
    """Check the version of Python."""
    found = ".".join(map(str, version))
    if version < (3, 11):
        return Finding("python", "fault", found, "use Python 3.11 or newer")
    if version >= _NEWEST:
        return Finding("python", "warning", found, "lsr_prod was not tried with this version; use an older one")
    return Finding("python", "ok", found)


def check_packages(version: Version = installed_version) -> Iterator[Finding]:
    """Check each requirement of lsr_prod that is installed, and the ONNX Runtime."""
    wrong = []
    for text in metadata.requires(_NAME) or []:
        needed = Requirement(text)
        found = version(needed.name)
        core = needed.marker is None or needed.marker.evaluate({"extra": ""})
        if found is None and core:
            wrong.append(f"{needed.name} is not installed")
        elif found is not None and not needed.specifier.contains(found, prereleases=True):
            wrong.append(f"{needed.name} {found} is not {needed.specifier}")
    if wrong:
        yield Finding("packages", "fault", "; ".join(sorted(set(wrong))), "install the packages of requirements/ again")
    else:
        yield Finding("packages", "ok", f"lsr_prod {version(_NAME)} and its requirements")
    runtimes = [name for name in _RUNTIMES if version(name) is not None]
    if len(runtimes) == len(_RUNTIMES):
        yield Finding(
            "onnxruntime",
            "fault",
            "onnxruntime and onnxruntime-gpu are both installed, and overwrite each other",
            "uninstall both, then install the one for this machine",
        )
    elif not runtimes:
        yield Finding("onnxruntime", "warning", "not installed: no text can be encoded", "install lsr_prod[cpu]")
    else:
        yield Finding("onnxruntime", "ok", f"{runtimes[0]} {version(runtimes[0])}")
