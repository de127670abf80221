"""A small corpus of several waves with a known expected outcome of every row."""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lsr_prod.storage.formats.sparse import SparseBatch

__all__ = ["POISON", "STEADY", "Corpus", "Row", "bad_places", "fake_vectors", "is_flaky", "json_line", "make_corpus"]

POISON = "poison"
STEADY = "steady"
_PADDING = 30_000  # bytes per document: a wave has at least one megabyte and must be quick
VOCABULARY = 30_522


@dataclass(frozen=True, slots=True)
class Row:
    """Expected outcome of a row of the corpus.

    Attributes:
        source: name of its file.
        position: first byte of its line.
        doc_id: id of the row, or None.
        reason: quarantine reason; None for a document.
        text: words of a document.
    """

    source: str
    position: int
    doc_id: str | None
    reason: str | None
    text: str = ""

    def text_fails(self, word: str) -> bool:
        """Return whether a model that is flaky by this word fails on it."""
        return is_flaky(self.text, word)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Files and the expected outcome of each of their rows.

    Attributes:
        paths: the files, in order.
        rows: of these files.
        quarantine: expected number of rows of the quarantine table by (source, position, id, reason), also of files
            that were removed since.
        former: rows of files that were removed.
    """

    paths: tuple[str, ...]
    rows: tuple[Row, ...]
    quarantine: Counter[tuple[str, int, str | None, str]] = field(default_factory=Counter)
    former: tuple[Row, ...] = ()

    @property
    def documents(self) -> frozenset[str]:
        """Ids that the table must have."""
        return frozenset(row.doc_id for row in self.rows if row.reason is None and row.doc_id)


def make_corpus(
    folder: Path,
    seed: int,
    *,
    documents: int = 180,
    files: int = 3,
    padding: int = _PADDING,
    poison: str | None = "encode_failed",
) -> Corpus:
    """Write the corpus: good rows, and among them every 18th a bad row of some kind.

    Args:
        folder: created if it does not exist.
        seed: the same seed gives the same bytes.
        documents: number of good rows.
        files: JSONL files of about equal size.
        padding: bytes added to the words of a document.
        poison: reason of documents with the word "poison"; None if the model accepts them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(f"corpus {seed}")
    lines: list[list[tuple[bytes, str | None, str | None, str]]] = [[] for _ in range(files)]
    for number in range(documents):
        file = lines[number * files // documents]
        doc_id = f"d{number}"
        words = [f"w{rng.randrange(500)}" for _ in range(12)]
        if (
            number % 3 == 0
        ):  # a document with a duplicate must not fail in one attempt only: the duplicate would replace it
            words[0] = STEADY
        file.append((json_line(doc_id, words, padding), doc_id, None, " ".join(words)))
        if number % 18 == 17:
            kind = (number // 18) % 4
            twin = f"d{rng.randrange(0, number + 1, 3)}"
            file.append(
                [
                    (b'{"_id": "torn", "text": "no end', None, "broken_json", ""),
                    (json_line(f"blank{number}", [], 0), f"blank{number}", "empty_text", ""),
                    (json_line(twin, ["again"], 0), twin, "duplicate_id", ""),
                    (json_line(f"poison{number}", [POISON], 0), f"poison{number}", poison, POISON),
                ][kind]
            )
    rows, paths = [], []
    for number, content in enumerate(lines):
        path = folder / f"{number}.jsonl"
        at = 0
        for line, doc_id, reason, text in content:
            rows.append(Row(path.name, at, doc_id, reason, text))
            at += len(line) + 1
        path.write_bytes(b"".join(line + b"\n" for line, *_ in content))
        paths.append(str(path))
    return Corpus(tuple(paths), tuple(rows), bad_places(rows))


def bad_places(rows: Iterable[Row]) -> Counter[tuple[str, int, str | None, str]]:
    """Count the bad rows by (source, position, id, reason)."""
    return Counter((row.source, row.position, row.doc_id, row.reason) for row in rows if row.reason is not None)


def json_line(doc_id: str, words: Sequence[str], padding: int) -> bytes:
    """Return a line of a JSONL file; spaces are added to the text of the document."""
    return json.dumps({"_id": doc_id, "text": " ".join(words) + " " * padding}).encode()


def is_flaky(text: str, word: str) -> bool:
    """Return whether an attempt with this word fails on the text; about one in twelve does.

    A word "=TEXT" fails on one text, also if other rows have its id.
    """
    if word.startswith("="):
        return text.strip() == word[1:]
    return STEADY not in text and hashlib.sha256((word + text.strip()).encode()).digest()[0] < 21


def fake_vectors(texts: Sequence[str]) -> SparseBatch:
    """Return vectors that depend only on the texts, in place of those of a model."""
    found = []
    for text in texts:
        digests = [hashlib.sha256(word.encode()).digest() for word in dict.fromkeys(text.split())]
        weights = {int.from_bytes(digest[:4], "big") % VOCABULARY: 0.5 + digest[4] / 128 for digest in digests}
        found.append(sorted(weights.items(), key=lambda item: (-item[1], item[0])))
    offsets = np.cumsum([0, *map(len, found)])
    terms = np.array([term for vector in found for term, _ in vector], np.int32)
    weights = np.array([weight for vector in found for _, weight in vector], np.float32)
    return SparseBatch(offsets, terms, weights)
