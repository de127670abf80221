"""docs/architecture.md is true: its pictures are up to date, and every file and function that it names exists."""

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
_PLACE = re.compile(r"`([\w/]+\.(?:py|c)): ([\w.]+)`")
_C_FUNCTION = re.compile(r"^\w.*?(\w+)\([^;]*\{$", re.MULTILINE)
_WALK = re.compile(r"^## Follow one (\w+)[^\n]*\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def drawing(name: str = "draw") -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "diagrams" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def definitions(file: Path) -> set[str]:
    """Qualified names of the functions, classes and methods of a file."""
    if file.suffix == ".c":
        return set(_C_FUNCTION.findall(file.read_text()))
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return found


def places() -> list[tuple[str, str]]:
    return sorted(set(_PLACE.findall(PAGE.read_text())))


@pytest.mark.parametrize(("file", "function"), places())
def test_the_named_function_exists(file: str, function: str):
    path = ROOT / "lsr_prod" / file
    assert path.is_file()
    assert function in definitions(path)


def test_the_page_follows_a_document_a_query_and_a_training_step():
    walks = {name: _PLACE.findall(text) for name, text in _WALK.findall(PAGE.read_text())}
    assert set(walks) == {"document", "query", "training"}
    assert all(len(walk) >= 5 for walk in walks.values())


def test_a_training_step_passes_at_most_eight_files():
    text = dict(_WALK.findall(PAGE.read_text()))["training"]
    assert len({file for file, _ in _PLACE.findall(text)}) <= 8


def test_the_pictures_are_up_to_date():
    for file, svg in drawing().pictures().items():
        assert file.read_text() == svg, "run python docs/diagrams/draw.py"
    for file, svg in drawing("draw_results").pictures().items():
        assert file.read_text() == svg, "run python docs/diagrams/draw_results.py"
