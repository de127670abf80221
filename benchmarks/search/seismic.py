"""Seismic (pyseismic-lsr) behind the protocol of ``benchmarks.search.worker``; runs in the peers' environment."""

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from seismic import SeismicDataset, SeismicIndex, get_seismic_string

from benchmarks.search.data import Collection
from benchmarks.search.worker import quiet

FILE = "index.index.seismic"


class Seismic:
    """Options: ``build`` (of build_from_dataset; queries use ``nknn`` too); ``cut`` and ``heap_factor`` of queries."""

    version = f"pyseismic-lsr {installed('pyseismic-lsr')}"

    @staticmethod
    def build(collection: Collection, folder: Path, options: Mapping[str, Any]) -> float:
        """CPU seconds from CSR arrays in its own types to a saved index, one thread."""
        rows, terms = collection.terms.shape
        arrays = (
            [str(i) for i in range(rows)],
            collection.terms.ravel().astype(np.int64),
            collection.impacts.ravel().astype(np.float32),
            np.arange(rows + 1, dtype=np.int64) * terms,
        )
        start = time.process_time()
        dataset = SeismicDataset(dim=collection.vocabulary)
        dataset.add_documents_by_id(*arrays)
        with quiet(1), quiet(2):
            index = SeismicIndex.build_from_dataset(dataset, num_threads=1, **options["build"])
            index.save(str(folder / "index"))
        return time.process_time() - start

    def __init__(self, _collection: Collection, folder: Path, options: Mapping[str, Any]) -> None:
        self.options = dict(options)
        self._size = (folder / FILE).stat().st_size
        self._string = get_seismic_string()
        with quiet(1):
            self._index = SeismicIndex.load(str(folder / FILE))

    def sizes(self) -> dict[str, int]:
        """Bytes."""
        return {"index": self._size}

    def prepare(
        self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], _k: int
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32], tuple[int, float, int]]:
        """Terms as the fixed-width strings that it wants, and the settings of the search."""
        asked = np.array([str(term) for term in terms], dtype=self._string)
        neighbors = self.options["build"].get("nknn", 0)  # the graph is scanned where there is one
        return asked, np.ascontiguousarray(weights), (self.options["cut"], self.options["heap_factor"], neighbors)

    def query(self, asked: tuple[npt.NDArray[Any], npt.NDArray[np.float32], tuple[int, float, int]], k: int) -> Any:
        """One search."""
        terms, weights, settings = asked
        return self._index.search("0", terms, weights, k, *settings)

    def batch(self, asked: Sequence[Any], k: int, threads: int) -> int:
        """Search with many queries in one call, which has threads of its own, and return their number."""
        _, _, settings = asked[0]
        names = np.array([str(i) for i in range(len(asked))], dtype=self._string)
        terms, weights = [one[0] for one in asked], [one[1] for one in asked]
        return len(self._index.batch_search(names, terms, weights, k, *settings, num_threads=threads))

    def decode(self, answer: Any) -> tuple[list[int], list[float]]:
        """Ordinals and scores."""
        return [int(row[2]) for row in answer], [row[1] for row in answer]
