"""What an image must be and do."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.infra.image.container import Container
from tests.infra.image.corpus import DOCUMENTS, QUERY

__all__ = ["COMPILERS", "check_jobs", "check_search", "check_static"]

# Programs that build programs; and pip, which would install more.
COMPILERS = (
    "cc",
    "gcc",
    "g++",
    "c++",
    "clang",
    "tcc",
    "ld",
    "as",
    "make",
    "cargo",
    "rustc",
    "nvcc",
    "strip",
    "pip",
    "pip3",
)
_FOLDERS = ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "opt/lsr-prod/bin")
_LABELS = ("title", "version", "revision", "licenses", "source", "base.name")
# Every module of the query library, and the functions of Arrow that evaluate filters.
_IMPORT_ALL = """
import importlib, pkgutil, lsr_prod.search, lsr_prod.inference, pyarrow as pa, pyarrow.compute as pc
for package in (lsr_prod.search, lsr_prod.inference):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
table = pa.table({"year": [2019, 2021], "lang": ["en", "de"]})
print(table.filter(pc.and_(pc.greater(table["year"], 2020), pc.is_in(table["lang"], pa.array(["de"])))).num_rows)
"""


def check_static(root: Path, image: Mapping[str, Any]) -> None:
    """Check the files and the configuration of an image, without running it."""
    config = image["config"]
    found = [f"{folder}/{name}" for folder in _FOLDERS for name in COMPILERS if os.path.lexists(root / folder / name)]
    assert not found, f"the image has {found}"
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", config["User"]), f"user is {config['User']!r}, not numbers above 0"
    absent = [name for name in _LABELS if not config["Labels"].get(f"org.opencontainers.image.{name}")]
    assert not absent, f"labels {absent} are missing"
    assert config.get("Healthcheck", {}).get("Test"), "the image has no health check"
    assert not (root / "etc" / "pip.conf").exists(), "the configuration of pip is in the image"
    special = [
        str(path) for path in (root / "opt").rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o6002
    ]
    assert not special, f"{special} are setuid or writable for everybody"


def check_jobs(container: Container) -> dict[str, Any]:
    """Encode and index 100 documents; returns seconds."""
    _check_confinement(container)
    figures = {}
    for job in ("encode", "index build"):
        done = _succeed(container, "lsr-prod", *job.split(), "--config", "/mnt/deployment.yaml")
        result = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULT "))
        assert result["documents"] == DOCUMENTS, f"{job}: {result}"
        figures[f"{job.split()[0]}_s"] = result["seconds"]
    _succeed(container, "healthcheck")
    return figures


def check_search(container: Container) -> dict[str, Any]:
    """Search the index of the jobs; returns seconds of a cold start."""
    _check_confinement(container)
    index = {"LSR_PROD_INDEX": "/mnt/index"}
    _succeed(container, "healthcheck")
    warmed = _succeed(container, "healthcheck", environment=index)
    cold = float(re.search(r"first queries ([\d.]+) ms", warmed.stdout)[1])
    found = _succeed(container, "lsr-prod", "search", "/mnt/index", stdin=f"{QUERY}\n")
    assert re.search(r"^ +1\. +[\d.]+  lock ", found.stdout, re.MULTILINE), found.stdout
    assert _succeed(container, "python", "-c", _IMPORT_ALL).stdout == "1\n"
    broken = container.run("healthcheck", environment={"LSR_PROD_INDEX": "/mnt/nothing"})
    assert broken.returncode == 1, f"an index that is not there counts as healthy: {broken.stdout}"
    return {"first_query_ms": cold}


def _check_confinement(container: Container) -> None:
    """Check that the program is not root, writes only where it may, and has no capability."""
    shown = _succeed(container, "sh", "-c", "id -u; grep CapEff /proc/self/status; touch /tmp/file && echo scratch")
    user, capabilities, scratch = shown.stdout.splitlines()
    assert (user, capabilities.split()[1].strip("0"), scratch) == (str(container.user), "", "scratch"), shown.stdout
    for place in ("/opt/lsr-prod/file", "/home/lsr/file", "/etc/file"):
        refused = container.run("touch", place)
        assert refused.returncode == 1, f"{place} can be written"
        assert "Read-only file system" in refused.stderr, refused.stderr


def _succeed(container: Container, *command: str, environment: Mapping[str, str] | None = None, stdin: str = "") -> Any:
    done = container.run(*command, environment=environment, stdin=stdin)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
