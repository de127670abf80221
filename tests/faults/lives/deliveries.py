"""The source of a life: a folder of JSON Lines files, and everything that people do to such files."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

from tests.faults.corpus import POISON

__all__ = ["FOLDERS", "Deliveries"]

FOLDERS = ("1", "2", "3")
_NAMES = 6
_ROWS = 14
_IDS = 60
_TEXTS = 4  # of an id: a text comes back
_WORDS = ["lorem", "ipsum", "dolor", "sit", "amet", "consectetur"]


class Deliveries:
    """The files of a source.

    Every choice follows from the arguments of an operation and the files that exist, so that a script still means
    something when some of its operations are left out.

    Args:
        folder: of the files.
        overlap: share of the rows whose id belongs to another file.
    """

    def __init__(self, folder: Path, overlap: float) -> None:
        self.folder, self._overlap = folder, overlap
        self.files: dict[str, bytes] = {}
        self._former: dict[str, list[bytes]] = {}
        for name in FOLDERS:
            (folder / name).mkdir(parents=True)

    def place(self, files: dict[str, bytes]) -> None:
        """Write a state of the source; files that do not change are left alone."""
        for name in self.files.keys() - files.keys():
            (self.folder / name).unlink()
        for name, data in files.items():
            if self.files.get(name) != data:
                self._former.setdefault(name, []).append(data)
                (self.folder / name).write_bytes(data)
        self.files = dict(files)

    def change(self, kind: str, a: int, b: int, c: int) -> None:
        """Carry out an operation; it does nothing if there is no file for it.

        Args:
            kind: name of the operation.
            a: chooses the file.
            b: chooses a name.
            c: seed of the content.
        """
        if kind == "add":
            name = f"{FOLDERS[a % len(FOLDERS)]}/{b % _NAMES}.jsonl"
            self._put(name, self._lines(b % _NAMES, c))
        elif self.files:
            _CHANGES[kind](self, sorted(self.files)[a % len(self.files)], b, c)

    def _put(self, name: str, data: bytes) -> None:
        self.place({**self.files, name: data})

    def _lines(self, number: int, seed: int) -> bytes:
        rng = random.Random(seed)
        first = number * _IDS // _NAMES
        lines = []
        for _ in range(rng.randint(1, _ROWS)):
            mine = rng.random() >= self._overlap
            lines.append(_line(rng, first + rng.randrange(_IDS // _NAMES) if mine else rng.randrange(_IDS)))
        return b"".join(lines)

    def _number(self, name: str) -> int:
        return int(name[2])

    def _copy(self, name: str, b: int, _: int) -> None:
        """Deliver the same bytes a second time, in another folder."""
        self._put(f"{FOLDERS[b % len(FOLDERS)]}{name[1:]}", self.files[name])

    def _rename(self, name: str, b: int, _: int) -> None:
        self._move(name, f"{name[0]}/{b % _NAMES}.jsonl")

    def _relocate(self, name: str, b: int, _: int) -> None:
        self._move(name, f"{FOLDERS[b % len(FOLDERS)]}{name[1:]}")

    def _move(self, name: str, new: str) -> None:
        if new != name:
            self.place({**{other: data for other, data in self.files.items() if other != name}, new: self.files[name]})

    def _delete(self, name: str, _: int, __: int) -> None:
        if len(self.files) > 1:  # a source without a file is refused
            self.place({other: data for other, data in self.files.items() if other != name})

    def _touch(self, name: str, b: int, _: int) -> None:
        os.utime(self.folder / name, (1_000_000_000 + b, 1_000_000_000 + b))

    def _truncate(self, name: str, _: int, c: int) -> None:
        data = self.files[name]
        self._put(name, data[: c % (len(data) + 1)])

    def _append(self, name: str, _: int, c: int) -> None:
        self._put(name, self.files[name] + self._lines(self._number(name), c))

    def _older(self, name: str, b: int, _: int) -> None:
        former = self._former[name]
        self._put(name, former[b % len(former)])

    def _empty(self, name: str, _: int, __: int) -> None:
        self._put(name, b"")

    def _edit(self, name: str, _: int, c: int) -> None:
        """Write some lines again: other texts, other titles, other bad rows."""
        rng = random.Random(c)
        lines = self.files[name].splitlines(keepends=True)
        for place in rng.sample(range(len(lines)), min(len(lines), rng.randint(1, 3))):
            try:
                doc_id = str(json.loads(lines[place]).get("_id", "d0"))
            except ValueError:
                doc_id = "d0"
            number = int(doc_id[1:]) if doc_id[0] == "d" else 0
            lines[place] = _line(rng, number)
        self._put(name, b"".join(lines))


_CHANGES: dict[str, Callable[[Deliveries, str, int, int], None]] = {
    "copy": Deliveries._copy,
    "rename": Deliveries._rename,
    "relocate": Deliveries._relocate,
    "delete": Deliveries._delete,
    "touch": Deliveries._touch,
    "truncate": Deliveries._truncate,
    "append": Deliveries._append,
    "older": Deliveries._older,
    "empty": Deliveries._empty,
    "edit": Deliveries._edit,
}
CHANGES = ("add", *_CHANGES)


def _line(rng: random.Random, number: int) -> bytes:
    """Return a line: a document in most cases."""
    kind = rng.random()
    text = f"d{number} {rng.randrange(_TEXTS)} {' '.join(_WORDS[: number % 5])}"
    record = {"_id": f"d{number}", "title": rng.choice("xyz"), "text": text}
    if kind < 0.02:
        return b'{"_id": "torn", "text": "no end\n'
    if kind < 0.04:
        record["text"] = " "
    elif kind < 0.06:
        del record["_id"]
    elif kind < 0.08:  # an id of its own: whether a failure leaves room for a duplicate depends on waves
        record |= {"_id": f"p{number}", "text": f"{POISON} {number}"}
    return json.dumps(record).encode() + b"\n"
