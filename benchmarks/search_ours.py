"""Our own engine, behind the protocol of ``search_worker``: the one file that knows how the index is laid out."""

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from search_data import Collection

from lsr_prod.formats.shard import ImpactArrays, array_path
from lsr_prod.indexing.impacts import ImpactWriter
from lsr_prod.indexing.plan import Layout
from lsr_prod.search.kernel import scan
from lsr_prod.search.query import required_terms
from lsr_prod.search.shard import Accumulators

BLOCK = 16_384
FORWARD = ("forward_offsets", "forward_terms", "forward_impacts")


class Ours:
    """Options: ``min_terms`` (a count) and ``overlap_threshold`` (a share of the query's terms)."""

    version = "format 1"

    @staticmethod
    def build(collection: Collection, folder: Path, _options: Mapping[str, Any]) -> float:
        """Seconds from rows to the impact arrays on disk; Tantivy's part of an index is not made."""
        (rows, terms), seconds = collection.terms.shape, 0.0
        with ImpactWriter(folder, Layout(BLOCK, terms, collection.vocabulary, (), ())) as writer:
            for first in range(0, rows, BLOCK):
                table = _table(collection, slice(first, first + BLOCK))
                start = time.perf_counter()
                writer.add(table)
                seconds += time.perf_counter() - start
            start = time.perf_counter()
        return seconds + time.perf_counter() - start

    def __init__(self, collection: Collection, folders: Path | Sequence[Path], options: Mapping[str, Any]) -> None:
        """Open one shard, or several as one index: their documents follow each other."""
        self._folders = [folders] if isinstance(folders, Path) else list(folders)
        size = len(collection)  # every shard's
        self._arrays = [ImpactArrays.open(folder, documents=size, block_size=BLOCK) for folder in self._folders]
        self._first = size * np.arange(len(self._arrays))
        self._threshold = {name: options[name] for name in ("min_terms", "overlap_threshold")}
        self._local = threading.local()

    def sizes(self) -> dict[str, int]:
        """Bytes: ``matching`` is what a query may read."""
        files = [path for folder in self._folders for path in array_path(folder, "").parent.glob("*.npy")]
        forward = sum(path.stat().st_size for path in files if path.stem in FORWARD)
        return {"matching": sum(path.stat().st_size for path in files) - forward, "forward": forward}

    def prepare(self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], _k: int) -> Any:
        """Ids, weights, and how many of the terms a document must share."""
        return terms.astype(np.int32), np.ascontiguousarray(weights), required_terms(len(terms), **self._threshold)

    def query(self, asked: Any, k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """One search over all shards."""
        terms, weights, required = asked
        memory = self._memory()
        found = []
        for a, first in zip(self._arrays, self._first, strict=True):
            scores, ids, shared = np.empty(k, np.float32), np.empty(k, np.int64), np.empty(k, np.uint16)
            index = (a.directory, a.terms, a.starts, a.bases, a.ids, a.impacts, a.documents, a.block_size)
            _, filled = scan(*index, terms, weights, required, memory.scores, memory.counts, scores, ids, shared)
            found.append((first + ids[:filled], scores[:filled]))
        ids, scores = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        best = np.lexsort((ids, -scores))[:k]
        return ids[best], scores[best]

    def decode(self, answer: Any) -> tuple[Any, Any]:
        """As it is."""
        return answer

    def touched(self, terms: npt.NDArray[np.int64], _weights: npt.NDArray[np.float32]) -> tuple[int, int]:
        """Postings read, and bytes: 3 a posting, the directory's probes, and each block's accumulators."""
        postings, probes, blocks = 0, 0, 0
        for a in self._arrays:
            for block in range(len(a.bases) - 1):
                first, last = int(a.directory[block]), int(a.directory[block + 1])
                here = a.terms[first:last]
                at = np.searchsorted(here, terms)
                found = at[(at < len(here)) & (here[np.minimum(at, len(here) - 1)] == terms)] + first + block
                postings += int((a.starts[found + 1].astype(np.int64) - a.starts[found]).sum())
                probes += len(terms) * int(np.ceil(np.log2(max(2, len(here)))))
                blocks += 1
        return postings, 3 * postings + 2 * probes + blocks * BLOCK * 6

    def _memory(self) -> Accumulators:
        if not hasattr(self._local, "memory"):
            self._local.memory = Accumulators.allocate()
        memory: Accumulators = self._local.memory
        return memory


def _table(collection: Collection, rows: slice) -> pa.Table:
    """Rows of the sparse table, as the index job reads them."""
    terms, impacts = collection.terms[rows], collection.impacts[rows]
    offsets = pa.array(np.arange(len(terms) + 1, dtype=np.int32) * terms.shape[1])
    columns = {
        "terms": pa.ListArray.from_arrays(offsets, pa.array(terms.ravel().astype(np.int32))),
        "impacts": pa.ListArray.from_arrays(offsets, pa.array(impacts.ravel().astype(np.uint16))),
    }
    return pa.table(columns)
