"""A corpus in an object store that changes every night; the last row of an id is the document."""

import json
import random

from lsr_prod.storage import Store

__all__ = ["Feed"]

_WORDS = """
river stone lamp garden engine copper window market paper forest signal bridge harbor winter method kernel table memory
vector query letter island planet doctor silver history music circle number object reader shelf zinc lock thread parser
socket folder string module python random integer process server client network
""".split()  # noqa: SIM905 - a list of words reads better
_BAD = 0.8  # share of the documents that a bad delivery lacks


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
        for start in range(0, documents, 50):
            self._files[f"base-{start:05d}.jsonl"] = rows[start : start + 50]
        self.deliver()

    def change(self) -> None:
        """Insert, update and delete some documents; rows of a new file replace those of earlier files."""
        self._night += 1
        rng, some = self._rng, max(2, len(self.documents) // 40)
        chosen = rng.sample(sorted(self.documents), 2 * some)
        updated, deleted = chosen[:some], set(chosen[some:])
        inserted = [f"new{self._night:02d}-{number:03d}" for number in range(some)]
        rows = [(doc_id, self._text()) for doc_id in [*inserted, *updated]]
        rows += [(doc_id, self._text()) for doc_id in rng.sample([*inserted, *updated], 2)]  # the last row counts
        files = {name: [row for row in old if row[0] not in deleted] for name, old in self._files.items()}
        self._files = {name: old for name, old in files.items() if old}
        self._files[f"night-{self._night:03d}.jsonl"] = rows
        self.documents = {**self.documents, **dict(rows)}
        for doc_id in deleted:
            del self.documents[doc_id]

    def deliver(self, *, bad: bool = False) -> None:
        """Write the files that changed; a bad delivery lacks most of the documents."""
        lacking = set(random.Random(self._night).sample(sorted(self.documents), int(_BAD * len(self.documents))))
        wanted = {}
        for name, rows in self._files.items():
            kept = [row for row in rows if not bad or row[0] not in lacking]
            lines = [json.dumps({"_id": doc_id, "text": text}) for doc_id, text in kept]
            wanted[name] = ("\n".join(lines) + "\n").encode()
        for name in self._written.keys() - wanted.keys():
            self._store.delete(name)
        for name, data in wanted.items():
            if self._written.get(name) != data:
                self._store.delete(name)
                assert self._store.put_new(name, data)
        self._written = wanted

    def _text(self) -> str:
        return " ".join(self._rng.choices(_WORDS, k=self._rng.randint(4, 14)))
