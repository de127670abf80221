"""The contracts of import-linter in pyproject.toml hold, and an import against the order of packages fails them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = Path(sys.executable).with_name("lint-imports")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(LINT), "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for package in ("lsr_prod", "lsr_prod_contrib"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_contracts_hold():
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout


def test_lint_is_part_of_make_lint():
    done = subprocess.run(["make", "-n", "lint"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "lint-imports" in done.stdout


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("inference/terms/words.py", "from lsr_prod.training.vocabulary import head"),  # against the order
        ("storage/stores.py", "from lsr_prod.search import Searcher"),
        ("training/negatives/rules.py", "from lsr_prod import serving"),  # independent packages of one layer
        ("search/follower.py", "import lsr_prod.config"),  # the query library stays light
        ("jobs/command.py", "import lsr_prod_contrib.estimates"),  # extras are imported on demand, by name
        ("../lsr_prod_contrib/estimates/command.py", "import lsr_prod_contrib.click_sets"),  # each stands alone
    ],
)
def test_an_import_against_the_order_fails(checkout: Path, file: str, line: str):
    path = checkout / "lsr_prod" / file
    path.write_text(path.read_text() + f"\n{line}\n")
    done = lint(checkout)
    assert done.returncode == 1
    assert "BROKEN" in done.stdout


def test_a_cycle_of_two_files_fails(checkout: Path):
    (checkout / "lsr_prod/storage/formats/one.py").write_text("import lsr_prod.storage.formats.two\n")
    (checkout / "lsr_prod/storage/formats/two.py").write_text("import lsr_prod.storage.formats.one\n")
    done = lint(checkout)
    assert done.returncode == 1
    assert "cycle BROKEN" in done.stdout
