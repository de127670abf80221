"""Every Python block of the README runs, in order, on an index like that of the quickstart."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.indexing.corpus import Doc, encode_corpus, make_index

README = Path(__file__).parents[2] / "README.md"
TEXTS = {
    "datetime.date.fromisoformat": "Parse a date, for example 2019-12-04, from a string in ISO format.",
    "datetime.datetime.strptime": "Parse a string by a format into a date and a time.",
    "threading.Lock.acquire": "Wait until no other thread holds the lock, then hold it.",
    "json.loads": "Parse a JSON string into a Python object.",
}
ATTRIBUTES = {"year": "2024", "lang": "en"}


@pytest.fixture
def quickstart(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A folder with ``.quickstart/index``, with words and attributes, and ``.quickstart/bundle``."""
    corpus = {
        doc_id: Doc(doc.terms, doc.text, {"title": doc_id, **ATTRIBUTES})
        for doc_id, doc in encode_corpus(tiny_bundle, TEXTS).items()
    }
    index = tmp_path / ".quickstart" / "index"
    make_index(index, corpus, bundle=tiny_bundle, bm25=True, attributes={"year": "int64", "lang": "string"})
    (index.parent / "bundle").symlink_to(tiny_bundle)
    return tmp_path


def test_every_python_block_runs(
    quickstart: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(quickstart)
    names: dict[str, Any] = {}
    printed = []
    for block in re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, README.name, "exec"), names)
        printed.append(capsys.readouterr().out)
    assert len(printed) == 2
    assert "Parse a date from a string" in printed[0]
    assert "datetime.date.fromisoformat" in printed[1]


def test_readme_is_short_and_begins_with_a_program() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    first = text.split("```python\n")[1].split("```")[0].splitlines()
    assert len(first) <= 10
    assert text.splitlines().index("```python") < 25 - len(first)
