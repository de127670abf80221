"""BMP (block-max pruning), behind the protocol of ``benchmarks.search.worker``; runs in the environment of the peers.

alpha = beta = 1, which its authors call exact. It rounds the weights of a query to a byte relative to the heaviest, so
that its ranking is exact for those, and its recall against unrounded weights is a little below 1. It starts from the
k-th best impact of each term, keeps the blocks that promise more, and panics where none does: such a query is asked for
ten times the hits, which lowers that start.
"""

import time
from collections.abc import Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from bmp import Indexer, Searcher

from benchmarks.search.data import Collection
from benchmarks.search.worker import quiet

BLOCK = 32
STEP = 1 << 14  # rows turned into Python objects at a time


class Bmp:
    """Options: ``sorted`` (documents by their true topics, which our engines are never given)."""

    version = f"bmp {installed('bmp')}"

    @staticmethod
    def build(collection: Collection, folder: Path, options: Mapping[str, Any]) -> float:
        """CPU seconds of its calls, from dicts to an index on disk."""
        names = [str(term) for term in range(collection.vocabulary)]
        count = len(collection)
        order = np.argsort(collection.labels, kind="stable") if options["sorted"] else np.arange(count)
        seconds = 0.0
        indexer = Indexer(str(folder / "index.bmp"), bsize=BLOCK, compress_range=False)
        for first in range(0, count, STEP):
            rows = order[first : first + STEP]
            vectors = zip(collection.terms[rows].tolist(), collection.impacts[rows].tolist(), strict=True)
            documents = [
                (str(row), {names[t]: i for t, i in zip(terms, impacts, strict=True)})
                for row, (terms, impacts) in zip(rows.tolist(), vectors, strict=True)
            ]
            start = time.process_time()
            for document in documents:
                indexer.add_document(*document)
            seconds += time.process_time() - start
        start = time.process_time()
        indexer.finish()
        return seconds + time.process_time() - start

    def __init__(self, _collection: Collection, folder: Path, options: Mapping[str, Any]) -> None:
        self.options = dict(options)
        self._file = folder / "index.bmp"
        self._searcher = Searcher(str(self._file))

    def sizes(self) -> dict[str, int]:
        """Bytes."""
        return {"index": self._file.stat().st_size}

    def prepare(
        self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], k: int
    ) -> tuple[dict[str, float], int]:
        """Weight by term as a string, and how many hits to ask for."""
        asked = {str(term): float(weight) for term, weight in zip(terms, weights, strict=True)}
        with quiet(2):
            while not self._survives(asked, k):
                k *= 10
        return asked, k

    def query(self, asked: tuple[dict[str, float], int], _k: int) -> Any:
        """One search."""
        terms, k = asked
        return self._searcher.search(terms, k=k, alpha=1.0, beta=1.0)

    def _survives(self, asked: dict[str, float], k: int) -> bool:
        try:
            self.query((asked, k), k)
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            return False
        return True

    def decode(self, answer: Any) -> tuple[list[int], list[float]]:
        """Ordinals and scores."""
        ids, scores = answer
        return [int(name) for name in ids], scores
