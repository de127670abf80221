"""Qdrant Edge behind the protocol of ``benchmarks.search.worker``; runs in the peers' environment."""

import time
from collections.abc import Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from qdrant_edge import (
    EdgeConfig,
    EdgeShard,
    EdgeSparseVectorParams,
    Point,
    Query,
    QueryRequest,
    SparseVector,
    UpdateOperation,
)

from benchmarks.search.data import Collection

NAME = "terms"
STEP = 1 << 14  # rows turned into Python objects at a time


class Qdrant:
    """No options; float32 weights, one search thread."""

    version = f"qdrant-edge-py {installed('qdrant-edge-py')}"

    @staticmethod
    def build(collection: Collection, folder: Path, _options: Mapping[str, Any]) -> float:
        """Return the CPU seconds from its points to an optimized shard on disk; it starts threads of its own.

        The CPU time in which points are made is subtracted, with what its threads do meanwhile.
        """
        start = time.process_time()
        config = EdgeConfig(sparse_vectors={NAME: EdgeSparseVectorParams()}, max_search_threads=1)
        shard = EdgeShard.create(str(folder / "shard"), config)
        for first in range(0, len(collection), STEP):
            before = time.process_time()
            terms = collection.terms[first : first + STEP].tolist()
            impacts = collection.impacts[first : first + STEP].astype(np.float32).tolist()
            points = [
                Point(first + row, {NAME: SparseVector(*vector)})
                for row, vector in enumerate(zip(terms, impacts, strict=True))
            ]
            start += time.process_time() - before
            shard.update(UpdateOperation.upsert_points(points))
        shard.optimize()  # without it every query scans all vectors
        shard.flush()
        shard.close()
        return time.process_time() - start

    def __init__(self, _collection: Collection, folder: Path, _options: Mapping[str, Any]) -> None:
        self._folder = folder
        self._shard = EdgeShard.load(str(folder / "shard"))

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the shard without its write-ahead log."""
        files = [path for path in (self._folder / "shard" / "segments").rglob("*") if path.is_file()]
        return {"index": sum(path.stat().st_blocks * 512 for path in files)}

    def prepare(self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], k: int) -> QueryRequest:
        """Return its request."""
        vector = SparseVector(terms.tolist(), weights.tolist())
        return QueryRequest(limit=k, query=Query.Nearest(vector, using=NAME))

    def query(self, asked: QueryRequest, _k: int) -> Any:
        """Search once; the hits are Python objects."""
        return self._shard.query(asked)

    def decode(self, answer: Any) -> tuple[list[int], list[float]]:
        """Return ordinals and scores."""
        return [point.id for point in answer], [point.score for point in answer]
