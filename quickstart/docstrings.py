"""Retrieval collection from the docstrings of the Python standard library and the installed packages.

Sources are parsed with ``ast`` and never imported. The id of a document is the qualified name, its query is the first
sentence of the docstring, and its text is the rest.
"""

import ast
import hashlib
import json
import re
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Entry", "collect", "write_collection"]

MIN_TEXT_WORDS = 20
MIN_QUERY_WORDS = 3
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n\s*\n")
_SURROGATE = re.compile("[\ud800-\udfff]")  # an escape in a docstring can produce one; it cannot be encoded as UTF-8
_SKIPPED_FOLDERS = {"__pycache__", "site-packages", "test", "tests", "idlelib", "lib2to3"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One docstring: qualified name, first sentence, and the rest."""

    name: str
    query: str
    text: str


def collect(documents: int) -> list[Entry]:
    """Return the first ``documents`` entries in the order of a hash, deduplicated by text and by name.

    Files are read in the order of the hash of their module name until there are enough entries: a sample of all
    packages without parsing every file.

    Raises:
        ValueError: the machine has fewer docstrings.
    """
    entries: dict[str, Entry] = {}
    texts: set[str] = set()
    for module, path in sorted(_modules(), key=lambda found: _hash(found[0])):
        for entry in _entries(module, path):
            if entry.name not in entries and entry.text not in texts:
                entries[entry.name] = entry
                texts.add(entry.text)
        if len(entries) >= documents:
            return sorted(entries.values(), key=lambda entry: _hash(entry.name))[:documents]
    raise ValueError(
        f"only {len(entries)} docstrings with {MIN_TEXT_WORDS} words are installed; {documents} are needed"
    )


def write_collection(folder: Path, entries: list[Entry], queries: int, *, development: int = 0) -> None:
    """Write ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv`` as in BEIR, and ``pairs.jsonl`` for training.

    Args:
        folder: created if absent.
        entries: the documents.
        queries: number of entries, chosen by hash, whose first sentence is a held-out query. The pairs are the other
            entries, except those with the same first sentence as a held-out query.
        development: number of further entries whose first sentences are held out for choosing settings, in
            ``development.jsonl`` and ``qrels/development.tsv``; with 0, these files are not written.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    by_hash = sorted(entries, key=lambda entry: _hash("query:" + entry.name))
    held_out, rest = by_hash[:queries], by_hash[queries:]
    _write_jsonl(folder / "corpus.jsonl", ({"_id": entry.name, "text": entry.text} for entry in entries))
    _write_queries(folder, "queries", "test", held_out)
    questions = {entry.query for entry in held_out}
    if development:
        chosen = [entry for entry in rest if entry.query not in questions][:development]
        _write_queries(folder, "development", "development", chosen)
        questions |= {entry.query for entry in chosen}
    pairs = ({"query": entry.query, "positive": entry.text} for entry in entries if entry.query not in questions)
    _write_jsonl(folder / "pairs.jsonl", pairs)


def _write_queries(folder: Path, queries: str, qrels: str, entries: list[Entry]) -> None:
    _write_jsonl(folder / f"{queries}.jsonl", ({"_id": f"q:{entry.name}", "text": entry.query} for entry in entries))
    rows = ["query-id\tcorpus-id\tscore", *(f"q:{entry.name}\t{entry.name}\t1" for entry in entries)]
    (folder / "qrels" / f"{qrels}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _modules() -> Iterator[tuple[str, Path]]:
    paths = sysconfig.get_paths()
    for root in sorted({Path(paths["stdlib"]), Path(paths["purelib"]), Path(paths["platlib"])}):
        for path in root.rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            if not _SKIPPED_FOLDERS.intersection(parts) and all(part.isidentifier() for part in parts):
                yield ".".join(parts).removesuffix(".__init__"), path


def _entries(module: str, path: Path) -> Iterator[Entry]:
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in strings of third-party code
            tree = ast.parse(file.read())
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return  # a template or test data of some package
    yield from _walk(tree, module)


def _walk(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[Entry]:
    docstring = ast.get_docstring(node)
    if docstring and (entry := _entry(name, docstring)):
        yield entry
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk(child, f"{name}.{child.name}")


def _entry(name: str, docstring: str) -> Entry | None:
    parts = _SENTENCE_END.split(docstring.strip(), maxsplit=1)
    query, text = (" ".join(part.split()) for part in (parts[0], parts[1] if len(parts) > 1 else ""))
    too_short = len(text.split()) < MIN_TEXT_WORDS or len(query.split()) < MIN_QUERY_WORDS
    if too_short or _SURROGATE.search(docstring):
        return None
    return Entry(name, query, text)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write_jsonl(path: Path, rows: Iterator[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
