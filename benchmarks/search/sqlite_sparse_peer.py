"""sqlite-sparse behind the protocol of ``benchmarks.search.worker``; runs in the peers' environment.

It stores a weight as a byte, the weight times 40, so that impacts divided by 40 are exact. The sqlite3 of most Python
builds does not load extensions; sqlean.py brings one that does.
"""

import json
import threading
import time
from collections.abc import Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlean
import sqlite_sparse

from benchmarks.search.data import Collection

FILE = "index.db"
SCALE = 40  # of its stored weights
# Without ``k`` it returns ten rows at most, whatever the limit.
SEARCH = "SELECT rowid, score FROM temp.documents WHERE documents.terms MATCH ? AND k = ?"
STEP = 1 << 14  # rows turned into Python objects at a time


class SqliteSparse:
    """No options; one connection per thread."""

    version = f"sqlite-sparse {installed('sqlite-sparse')}"

    @staticmethod
    def build(collection: Collection, folder: Path, _options: Mapping[str, Any]) -> float:
        """Return the CPU seconds from rows of JSON to a database."""
        start = time.process_time()
        vocabulary = folder / "vocabulary.txt"
        vocabulary.write_text("\n".join(f"t{term}" for term in range(collection.vocabulary)))
        database = _connect(folder)
        database.execute(f"CREATE VIRTUAL TABLE documents USING sparse0(vocab='{vocabulary}')")
        for first in range(0, len(collection), STEP):
            before = time.process_time()
            terms = collection.terms[first : first + STEP].tolist()
            weights = (collection.impacts[first : first + STEP] / SCALE).tolist()
            rows = [
                (first + row + 1, json.dumps({f"t{term}": weight for term, weight in zip(*vector, strict=True)}))
                for row, vector in enumerate(zip(terms, weights, strict=True))
            ]
            start += time.process_time() - before
            database.executemany("INSERT INTO documents(rowid, terms) VALUES (?, ?)", rows)
        database.commit()
        database.close()
        return time.process_time() - start

    def __init__(self, _collection: Collection, folder: Path, _options: Mapping[str, Any]) -> None:
        self._folder = folder
        self._local = threading.local()

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the database."""
        return {"index": (self._folder / FILE).stat().st_size}

    def prepare(
        self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], k: int
    ) -> tuple[str, tuple[str, int]]:
        """Return the statement and its values."""
        vector = {f"t{term}": float(weight) for term, weight in zip(terms, weights, strict=True)}
        return "SELECT rowid, score FROM temp.documents WHERE documents.terms MATCH ? AND k = ?", (
            json.dumps(vector),
            k,
        )

    def query(self, asked: tuple[str, tuple[str, int]], _k: int) -> Any:
        """Search once; the hits are tuples."""
        if not hasattr(self._local, "database"):
            self._local.database = _connect(self._folder)
            self._local.database.execute("CREATE VIRTUAL TABLE temp.documents USING sparse0()")  # adopts the index
        return self._local.database.execute(*asked).fetchall()

    def decode(self, answer: Any) -> tuple[list[int], list[float]]:
        """Return ordinals and scores."""
        return [rowid - 1 for rowid, _ in answer], [score * SCALE for _, score in answer]


def _connect(folder: Path) -> Any:
    database = sqlean.connect(str(folder / FILE), check_same_thread=False)
    sqlite_sparse.load(database)
    return database
