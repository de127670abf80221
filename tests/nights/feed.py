"""A corpus in an object store that changes every night; the last row of an id is the document."""

import json
import random

from lsr_prod.storage import Store

__all__ = ["GOLDEN", "Feed"]

GOLDEN = {"golden-1": "copper shelf in the harbor signal", "golden-2": "doctor of the silver island"}
"""Documents that no night changes, which a query with their text has to find."""

_WORDS = """
river stone lamp garden engine copper window market paper forest signal bridge harbor winter method kernel table memory
vector query letter island planet doctor silver history music circle number object reader shelf zinc lock thread parser
socket folder string module python random integer process server client network
""".split()  # noqa: SIM905 - a list of words reads better
_ROWS = 10  # documents of a file of the first delivery
_LACKING = 0.8  # share of the documents that a bad delivery lacks


class Feed:
    """Source of the nights.

    Attributes:
        documents: text by id, as the index must have them after a good night.
    """

    def __init__(self, store: Store, documents: int, seed: int) -> None:
        """Write the first delivery."""
        self._store, self._rng = store, random.Random(seed)
        self._files: dict[str, list[tuple[str, str]]] = {}
        self._written: dict[str, bytes] = {}
        self._night = 0
        self.documents = {f"doc{number:05d}": self._text() for number in range(documents)}
        rows = list(self.documents.items())
        self._files["golden.jsonl"] = list(GOLDEN.items())
        self.documents |= GOLDEN
        for start in range(0, documents, _ROWS):
            self._files[f"base-{start:05d}.jsonl"] = rows[start : start + _ROWS]
        self.deliver()

    def change(self) -> None:
        """Insert, update and delete some documents; rows of a new file replace those of earlier files."""
        self._night += 1
        rng, some = self._rng, max(2, len(self.documents) // 40)
        known = self.documents.keys() - GOLDEN.keys()
        # Documents of one file are deleted: every row of a file that changed is delivered again.
        name = rng.choice(sorted(name for name, rows in self._files.items() if known & {row[0] for row in rows}))
        deleted = set(sorted(known & {row[0] for row in self._files[name]})[:some])
        updated = rng.sample(sorted(known - deleted), some)
        inserted = [f"new{self._night:02d}-{number:03d}" for number in range(some)]
        rows = [(doc_id, self._text()) for doc_id in [*inserted, *updated]]
        rows += [(doc_id, self._text()) for doc_id in rng.sample([*inserted, *updated], 2)]  # the last row counts
        files = {name: [row for row in old if row[0] not in deleted] for name, old in self._files.items()}
        self._files = {name: old for name, old in files.items() if old}
        self._files[f"night-{self._night:03d}.jsonl"] = rows
        self.documents = {**self.documents, **dict(rows)}
        for doc_id in deleted:
            del self.documents[doc_id]

    def deliver(self, bad: str = "") -> None:
        """Write the files that changed.

        Args:
            bad: "lacking": most of the documents are missing; "garbled": every document has the text of another;
                "flooded": a copy of every document has another id; "": nothing is wrong.
        """
        wanted = {}
        for name, rows in self._spoiled(bad).items():
            lines = [json.dumps({"_id": doc_id, "text": text}) for doc_id, text in rows]
            wanted[name] = ("\n".join(lines) + "\n").encode()
        for name in self._written.keys() - wanted.keys():
            self._store.delete(name)
        for name, data in wanted.items():
            if self._written.get(name) != data:
                self._store.delete(name)
                assert self._store.put_new(name, data)
        self._written = wanted

    def _spoiled(self, bad: str) -> dict[str, list[tuple[str, str]]]:
        """Return the rows of a delivery, by file."""
        rng = random.Random(self._night)
        if bad == "lacking":
            lacking = set(rng.sample(sorted(self.documents), int(_LACKING * len(self.documents))))
            return {name: [row for row in rows if row[0] not in lacking] for name, rows in self._files.items()}
        if bad == "garbled":
            texts = [text for rows in self._files.values() for _, text in rows]
            return {name: [(doc_id, rng.choice(texts)) for doc_id, _ in rows] for name, rows in self._files.items()}
        if bad == "flooded":
            copies = [(f"copy-of-{doc_id}", text) for doc_id, text in self.documents.items()]
            return {**self._files, "copies.jsonl": copies}
        return self._files

    def _text(self) -> str:
        return " ".join(self._rng.choices(_WORDS, k=self._rng.randint(4, 14)))
