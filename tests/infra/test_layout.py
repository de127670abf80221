"""Rules of the repository's layout that no linter checks."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = 26
CODE = ("lsr_prod", "lsr_prod_contrib", "benchmarks", "jobs", "quickstart")
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/adr/*.md"), *ROOT.glob("benchmarks/*.md")]
_PATH = re.compile(r"`((?:lsr_prod|lsr_prod_contrib|benchmarks|jobs|tests|docs|quickstart|requirements)/[\w./-]*\w/?)`")


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_no_folder_is_flat_and_large():
    counts = Counter(path.parent for path in modules(*CODE))
    assert {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > FILES} == {}


def imported(path: Path) -> set[str]:
    """Top-level packages that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
    return found


def test_only_tests_import_tests():
    paths = modules(*CODE)
    assert [str(path) for path in paths if "tests" in path.read_text() and "tests" in imported(path)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_files_that_exist(page: Path):
    named = set(_PATH.findall(page.read_text()))
    if page.name == "log.md":  # an entry names files of its day
        named = {name for name in named if name.startswith("benchmarks/")}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
