"""Write the software bill of materials of each image, from its lock, as CycloneDX JSON; ``make sbom`` runs this module.

    python -m infra.supply.sbom FOLDER [--python 3.11]

The bill of an image names the packages that its lock installs on Linux (x86-64) with the given Python, with hashes and
the licenses of ``docs/licenses.md``. Packages of the base image are not in it. Equal locks give equal bytes.
"""

import argparse
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from infra.supply.licenses import read_page
from infra.supply.locks import IMAGES, LOCKS, ROOT, normalized

__all__ = ["bill", "main", "requirements"]


def requirements(image: str, python: str) -> str:
    """Return the lines of an image's lock that apply to Linux with a Python, such as ``3.11``."""
    from packaging.markers import Marker

    environment = {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.99",
        "python_version": python,
        "sys_platform": "linux",
    }
    text = "".join((ROOT / "requirements" / file).read_text() for file in LOCKS[image])
    kept = []
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE):
        marker = re.match(r"[^\n]*? ; ([^\\\n]+)", block)
        if marker is None or Marker(marker[1].strip()).evaluate(environment):
            kept.append(block)
    return "".join(kept)


def bill(image: str, python: str) -> dict[str, Any]:
    """Return the bill of an image.

    Raises:
        KeyError: ``docs/licenses.md`` has no row for a package.
        CalledProcessError: cyclonedx-py fails.
    """
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", "--pyproject", str(ROOT / "pyproject.toml")]
    command += ["--output-reproducible", "--spec-version", "1.6", "-o", "-", "-"]
    done = subprocess.run(  # noqa: S603
        command, input=requirements(image, python), capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    licenses = read_page()
    root = found["metadata"]["component"]
    root["name"], root["version"] = f"lsr_prod-{image}", _version()
    for component in found["components"]:
        name, version = normalized(component["name"]), component["version"]
        component["licenses"] = [{"expression": licenses[name, version][0]}]
        component["bom-ref"] = component["purl"]
        component.pop("description", None)  # the lines of the lock
    found["components"].sort(key=lambda component: component["purl"])
    references = [component["bom-ref"] for component in found["components"]]
    found["dependencies"] = [{"ref": root["bom-ref"], "dependsOn": references}, *({"ref": one} for one in references)]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Write the bills of all images; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.supply.sbom")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the bills are written")
    parser.add_argument("--python", default="3.11", metavar="VERSION", help="Python of the images; default: 3.11")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    for image in IMAGES:
        found = bill(image, given.python)
        problem = _problem(text := json.dumps(found, indent=2, sort_keys=True) + "\n")
        if problem:
            sys.stderr.write(f"sbom: the bill of {image} is not valid: {problem}\n")
            return 1
        path = given.folder / f"{image}.cdx.json"
        path.write_text(text)
        sys.stdout.write(f"{path}: {len(found['components'])} packages\n")
    return 0


def _problem(text: str) -> str:
    """Return what the JSON schema of CycloneDX says against a bill; "" if it is valid."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    return "" if error is None else str(error)


def _version() -> str:
    match = re.search(r'^__version__ = "(.+)"$', (ROOT / "lsr_prod" / "__init__.py").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
