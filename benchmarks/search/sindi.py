"""SINDI (pyvsag) behind the protocol of ``benchmarks.search.worker``; runs in the peers' environment.

Postings in windows of 50,000 documents, scanned without bounds; exact unless ``quantize`` or pruning is asked for.
"""

import json
import time
from collections.abc import Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyvsag

from benchmarks.search.data import Collection
from benchmarks.search.worker import quiet

FILE = "index.sindi"
WINDOW = 50_000


class Sindi:
    """Options: ``quantize`` (8-bit weights); ``query_prune`` and ``term_prune``, shares that a query drops."""

    version = f"pyvsag {installed('pyvsag')}"

    @staticmethod
    def build(collection: Collection, folder: Path, options: Mapping[str, Any]) -> float:
        """Return the CPU seconds from CSR arrays in its own types to a saved index, one thread."""
        rows, terms = collection.terms.shape
        arrays = (
            np.arange(0, (rows + 1) * terms, terms).astype(np.uint32),
            collection.terms.astype(np.uint32).ravel(),  # the terms of a row rise, which it requires
            collection.impacts.astype(np.float32).ravel(),
            np.arange(rows).astype(np.int64),
        )
        start = time.process_time()
        index = _empty(collection, options)
        index.build(*arrays)
        with quiet(1):
            index.save(str(folder / FILE))
        return time.process_time() - start

    def __init__(self, collection: Collection, folder: Path, options: Mapping[str, Any]) -> None:
        self.options = dict(options)
        self._size = (folder / FILE).stat().st_size
        self._documents = len(collection)
        self._index = _empty(collection, options)
        with quiet(1):
            self._index.load(str(folder / FILE))

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the index."""
        return {"index": self._size}

    def prepare(
        self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], _k: int
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.float32], str]:
        """Return the query as CSR arrays with sorted terms, and the parameters of the search."""
        order = np.argsort(terms)
        settings = {"query_prune_ratio": self.options["query_prune"], "term_prune_ratio": self.options["term_prune"]}
        return (
            np.array([0, len(order)], np.uint32),
            terms[order].astype(np.uint32),
            np.ascontiguousarray(weights[order], np.float32),
            json.dumps({"sindi": {**settings, "n_candidate": 0}}),
        )

    def query(self, asked: Any, k: int) -> Any:
        """Search once; the hits are two arrays."""
        offsets, terms, weights, settings = asked
        return self._index.knn_search(offsets, terms, weights, k, settings)

    def decode(self, answer: Any) -> tuple[list[int], list[float]]:
        """Return ordinals and scores of documents that match; where fewer than k match, it fills up with others."""
        ids, scores = answer[0].ravel(), 1 - answer[1].ravel()  # its distances are one minus the inner product
        matches = (scores > 0) & (ids >= 0) & (ids < self._documents)
        return ids[matches].tolist(), scores[matches].tolist()


def _empty(collection: Collection, options: Mapping[str, Any]) -> Any:
    settings = {
        "use_reorder": False,
        "doc_prune_ratio": 0,
        "window_size": WINDOW,
        "term_id_limit": collection.vocabulary + 1,
        "use_quantization": options["quantize"],
        "avg_doc_term_length": collection.terms.shape[1],
    }
    parameters = {"dtype": "sparse", "metric_type": "ip", "dim": 128, "index_param": settings}
    return pyvsag.Index("sindi", json.dumps(parameters))
