import json
from pathlib import Path

import pytest

from quickstart import docstrings
from quickstart.docstrings import Entry, collect, write_collection

SOURCE = '''
"""Module summary sentence here.

{words}
"""

class Thing:
    """Hold one thing for later. {words}"""

    def method(self):
        """Too short to keep.

        Few words."""

    async def other(self):
        """Same text as the class has. {words} and more"""


def twin():
    """Another sentence, equal rest. {words}"""
'''


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Machine whose only package is ``pack``."""
    (tmp_path / "site" / "pack" / "tests").mkdir(parents=True)
    words = " ".join(f"word{i}" for i in range(20))
    (tmp_path / "site" / "pack" / "__init__.py").write_text(SOURCE.replace("{words}", words))
    (tmp_path / "site" / "pack" / "tests" / "test_a.py").write_text(SOURCE.replace("{words}", words + " hidden"))
    (tmp_path / "site" / "pack" / "template.py").write_text("def {{ name }}(: pass")
    paths = dict.fromkeys(("stdlib", "purelib", "platlib"), str(tmp_path / "site"))
    monkeypatch.setattr(docstrings.sysconfig, "get_paths", lambda: paths)
    return tmp_path


def test_collect_returns_names_first_sentences_and_texts(installed: Path) -> None:
    entries = {entry.name: entry for entry in collect(2)}
    # The module, the class and twin() have the same text: only the first is kept.
    assert set(entries) == {"pack", "pack.Thing.other"}
    assert entries["pack"].query == "Module summary sentence here."
    assert entries["pack"].text.split() == [f"word{i}" for i in range(20)]


def test_collect_raises_if_there_are_too_few_docstrings(installed: Path) -> None:
    with pytest.raises(ValueError, match="only 2 docstrings"):
        collect(3)


def test_write_collection_uses_layout_of_beir(installed: Path) -> None:
    write_collection(installed / "c", collect(2), queries=1)
    corpus = [json.loads(line) for line in (installed / "c" / "corpus.jsonl").read_text().splitlines()]
    queries = [json.loads(line) for line in (installed / "c" / "queries.jsonl").read_text().splitlines()]
    qrels = (installed / "c" / "qrels" / "test.tsv").read_text().splitlines()
    assert {row["_id"] for row in corpus} == {"pack", "pack.Thing.other"}
    assert len(queries) == 1
    assert qrels == ["query-id\tcorpus-id\tscore", f"{queries[0]['_id']}\t{queries[0]['_id'][2:]}\t1"]
    assert queries[0]["text"] not in " ".join(row["text"] for row in corpus)


def test_pairs_contain_no_held_out_query(tmp_path: Path) -> None:
    entries = [Entry(f"pack.f{i}", f"Sentence number {i % 7} here.", f"text {i}") for i in range(20)]
    write_collection(tmp_path, entries, queries=3)
    held_out = {json.loads(line)["text"] for line in (tmp_path / "queries.jsonl").read_text().splitlines()}
    pairs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert [(row["query"], row["positive"]) for row in pairs] == [
        (entry.query, entry.text) for entry in entries if entry.query not in held_out
    ]
    assert 0 < len(pairs) < 17


def test_development_queries_are_in_neither_pairs_nor_evaluation(tmp_path: Path) -> None:
    entries = [Entry(f"pack.f{i}", f"Sentence number {i % 15} here.", f"text {i}") for i in range(40)]
    write_collection(tmp_path / "without", entries, queries=4)
    write_collection(tmp_path, entries, queries=4, development=5)
    texts = {
        name: [json.loads(line)[field] for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name, field in (("queries", "text"), ("development", "text"), ("pairs", "query"))
    }
    assert len(texts["development"]) == 5
    assert not set(texts["development"]) & {*texts["queries"], *texts["pairs"]}
    assert len((tmp_path / "qrels" / "development.tsv").read_text().splitlines()) == 6
    for name in ("queries.jsonl", "qrels/test.tsv"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "without" / name).read_bytes()
    assert not (tmp_path / "without" / "development.jsonl").exists()


@pytest.mark.long
def test_collect_is_deterministic_on_this_machine() -> None:
    entries = collect(200)
    assert entries == collect(200)
    assert len({entry.text for entry in entries}) == 200
    assert all(len(entry.text.split()) >= 20 for entry in entries)
