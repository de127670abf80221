"""The package of extras: part of the wheel and of the images, loaded by name only, and logged like the rest."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lsr_prod.extras import contrib

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "lsr_prod_contrib"


def test_wheel_and_images_contain_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == project["tool"]["mypy"]["packages"] == project["tool"]["importlinter"]["root_packages"]
    assert PACKAGE.name in packages
    copies = [line.split() for line in (ROOT / "Dockerfile").read_text().splitlines()]
    assert all(["COPY", name, name] in copies for name in packages)


def test_start_of_the_command_line_loads_no_extra() -> None:
    code = (
        "import sys; from lsr_prod.jobs.command import main; main(['--help']); import lsr_prod.config; "
        "import lsr_prod.encoding; print(sorted(name for name in sys.modules if 'prod_contrib' in name))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]"


def test_records_of_extras_go_to_the_log_of_lsr_prod() -> None:
    assert [path for path in PACKAGE.rglob("*.py") if "get_log(__name__)" in path.read_text()] == []


def test_each_part_is_on_the_page() -> None:
    page = (ROOT / "docs" / "contrib.md").read_text()
    parts = sorted({path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")})
    assert [part for part in parts if part != "__init__" and f"| `{part}` |" not in page] == []


def test_module_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError):
        contrib("nothing")
