"""The terms of docs/glossary.md are the ones that configuration, metrics and log events use."""

import ast
import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

import lsr_prod.config

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ?([^|]*?) ?\|$", re.MULTILINE)
_METRIC = re.compile(r"^lsr_prod_[a-z0-9_]+$")


def glossary() -> dict[str, list[str]]:
    """Forbidden synonyms per term."""
    rows = _ROW.findall((ROOT / "docs" / "glossary.md").read_text())
    return {term: [word for word in synonyms.split(", ") if word] for term, _, synonyms in rows if term != "term"}


SYNONYMS = sorted((word, term) for term, words in glossary().items() for word in words)


@cache
def descriptions() -> list[tuple[str, str]]:
    """Name and description of every configuration field, and of every section."""
    found = []
    for module in pkgutil.iter_modules(lsr_prod.config.__path__, "lsr_prod.config."):
        for name, section in vars(importlib.import_module(module.name)).items():
            if isinstance(section, type) and issubclass(section, BaseModel) and section is not BaseModel:
                found.append((name, section.__doc__ or ""))
                found += [(f"{name}.{field}", info.description or "") for field, info in section.model_fields.items()]
    return found


@cache
def strings() -> list[tuple[str, ast.Call, str]]:
    """File, the call that a string is the first argument of, and the string, for all of the library."""
    found = []
    for path in sorted(ROOT.glob("lsr_prod*/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(args=[ast.Constant(value=str(text)), *_]):
                    found.append((str(path.relative_to(ROOT)), node, text))
    return found


@cache
def log_events() -> list[tuple[str, str]]:
    """File and text of every log event."""
    found = []
    for file, call, text in strings():
        function = call.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "log":
            found.append((file, text))
    return found


def metrics() -> set[str]:
    """Names of all metrics: what is given to Counter, Gauge and Histogram."""
    found = set()
    for _, call, text in strings():
        function = call.func
        if isinstance(function, ast.Name) and function.id in {"Counter", "Gauge", "Histogram"}:
            found.add(text)
    return found


def uses(text: str, synonym: str) -> bool:
    return re.search(rf"\b{re.escape(synonym)}s?\b", text.replace("_", " "), re.IGNORECASE) is not None


def test_the_glossary_has_each_term_once():
    terms = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    names = [term for term in terms if term not in {"term", "---"}]
    assert len(names) == len(set(names))
    assert len(names) >= 40
    assert not {word for word, _ in SYNONYMS} & set(names)


@pytest.mark.parametrize(("synonym", "term"), SYNONYMS)
def test_configuration_uses_the_term_and_not_its_synonym(synonym: str, term: str):
    assert [name for name, text in descriptions() if uses(text, synonym)] == [], f"write {term!r}"


@pytest.mark.parametrize(("synonym", "term"), SYNONYMS)
def test_log_events_use_the_term_and_not_its_synonym(synonym: str, term: str):
    assert [place for place in log_events() if uses(place[1], synonym)] == [], f"write {term!r}"


def test_metrics_share_one_prefix_and_use_no_synonym():
    found = metrics()
    assert len(found) > 5
    assert [name for name in sorted(found) if not _METRIC.match(name)] == []
    assert [name for name in found for synonym, _ in SYNONYMS if uses(name, synonym)] == []
