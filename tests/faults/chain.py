"""A source that changes: its states, and the expected outcome of every row when increments follow them.

State 0 is a first encode. Then files are changed in place, added, removed and brought back, documents move between
files, and the last state only removes a file. Documents with a duplicate never leave the source.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.corpus import POISON, STEADY, Corpus, Row, bad_places, json_line

__all__ = ["Line", "SourceChain", "make_chain"]

_PADDING = 30_000
_TORN = b'{"_id": "torn", "text": "no end'


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file and its expected outcome; see ``corpus.Row``."""

    data: bytes
    doc_id: str | None
    reason: str | None
    text: str


@dataclass(frozen=True, slots=True)
class SourceChain:
    """The states of a source.

    Attributes:
        states: lines of the files of every state by name.
    """

    states: tuple[Mapping[str, Sequence[Line]], ...]

    def __len__(self) -> int:
        return len(self.states)

    def content(self, state: int) -> dict[str, bytes]:
        """Return the files of a state by name."""
        return {name: b"".join(line.data + b"\n" for line in lines) for name, lines in self.states[state].items()}

    def expected(self, states: Sequence[int]) -> Corpus:
        """Return the expected outcome of every row after some states were encoded one after the other."""
        rows: dict[str, list[Row]] = {}
        before: Mapping[str, Sequence[Line]] = {}
        seen: dict[Row, None] = {}
        bad: Counter[tuple[str, int, str | None, str]] = Counter()
        for state in states:
            seen |= dict.fromkeys(row for found in rows.values() for row in found)
            now = self.states[state]
            rows = {name: _rows(name, lines) for name, lines in now.items()}
            for name, lines in now.items():
                if before.get(name) != lines:  # the increment reads it
                    bad += bad_places(rows[name])
            before = now
        return Corpus(tuple(before), tuple(row for found in rows.values() for row in found), bad, tuple(seen))

    def place(self, folder: Path, state: int) -> tuple[str, ...]:
        """Write the files of a state into a folder, and return their paths in the order of the source."""
        folder.mkdir(parents=True, exist_ok=True)
        wanted = self.content(state)
        for path in folder.iterdir():
            if path.name not in wanted:
                path.unlink()
        for name, data in wanted.items():
            path = folder / name
            if not path.exists() or path.read_bytes() != data:
                draft = folder.with_name(f"{folder.name}.{os.getpid()}.new")
                draft.write_bytes(data)
                draft.replace(path)
        return tuple(str(folder / name) for name in wanted)

    def words(self, file: str = "0.jsonl") -> Iterator[str]:
        """Yield words of flaky models, each of which fails on other documents of a file."""
        rows = [row for row in self.expected([0]).rows if row.source == file and row.reason is None]
        seen: set[frozenset[str]] = set()
        for number in range(10_000):
            failing = frozenset(row.doc_id or "" for row in rows if row.text_fails(str(number)))
            if failing and seen.isdisjoint({failing}):
                seen.add(failing)
                yield str(number)


def make_chain(
    seed: int, *, documents: int = 24, padding: int = _PADDING, poison_reason: str | None = "encode_failed"
) -> SourceChain:
    """Return the chain of a seed.

    Args:
        seed: the same seed gives the same bytes.
        documents: number of good rows of each file of the first state.
        padding: bytes added to the words of a document.
        poison_reason: reason of documents with the word "poison"; None if the model accepts them.
    """

    def document(doc_id: str, *more: str) -> Line:
        number = int(doc_id[1:])
        steady = [STEADY] if doc_id[0] == "b" or number % 3 == 0 else []
        words = [*steady, *(f"w{(seed + 7 * number * place + ord(doc_id[0])) % 500}" for place in range(1, 12)), *more]
        return Line(json_line(doc_id, words, padding), doc_id, None, " ".join(words))

    def documents_of(letter: str, first: int, end: int, *more: str) -> list[Line]:
        return [document(f"{letter}{number}", *more) for number in range(first, end)]

    def again(doc_id: str) -> Line:
        return Line(json_line(doc_id, ["again"], 0), doc_id, "duplicate_id", "")

    def blank(doc_id: str) -> Line:
        return Line(json_line(doc_id, [], 0), doc_id, "empty_text", "")

    def poison(doc_id: str) -> Line:
        return Line(json_line(doc_id, [POISON], 0), doc_id, poison_reason, POISON)

    torn = Line(_TORN, None, "broken_json", "")
    third, half = documents // 3, documents // 2
    a, b, c, f = (documents_of(letter, 0, documents) for letter in "abcf")
    one = [*b, torn, again("a3")]
    changed = [document("e0"), *b[:third], *documents_of("b", third, 2 * third, "changed")]
    changed += [*documents_of("e", 1, third), poison("poison1"), again("a6")]
    three = [*f, torn, again("a9")]
    later = [*c[:6], *documents_of("f", 0, half, "changed"), *documents_of("g", 0, half), blank("blank3")]
    zero = [*a, torn, blank("blank0"), poison("poison0"), again("a0")]
    states = [
        {"0.jsonl": zero, "1.jsonl": one, "2.jsonl": c},
        {"0.jsonl": zero, "1.jsonl": changed, "2.jsonl": c, "3.jsonl": three},
        {"0.jsonl": zero, "1.jsonl": changed, "3.jsonl": later},
        {"0.jsonl": zero, "1.jsonl": one, "3.jsonl": later},
        {"0.jsonl": zero, "1.jsonl": one},
    ]
    return SourceChain(tuple(states))


def _rows(name: str, lines: Sequence[Line]) -> list[Row]:
    rows: list[Row] = []
    at = 0
    for line in lines:
        rows.append(Row(name, at, line.doc_id, line.reason, line.text))
        at += len(line.data) + 1
    return rows
