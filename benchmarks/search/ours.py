"""Our engine behind the protocol of ``benchmarks.search.worker``: the only benchmark that knows the index layout."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.search.data import Collection
from lsr_prod.indexing.base_shard import write_arrays
from lsr_prod.indexing.impacts.vectors import Vectors, VectorSpill
from lsr_prod.indexing.index_plan import ShardLayout
from lsr_prod.search.query.sparse_query import required_terms
from lsr_prod.search.shard.open_shard import OpenShard
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.search.shard.shard_reader import ShardReader
from lsr_prod.storage.formats.digests import canonical_json, digest_files
from lsr_prod.storage.formats.index_format import INDEX_FORMAT, SHARD_FILE, ShardManifest
from lsr_prod.storage.formats.pages import PAGE_DIGESTS_FILE, page_digests
from lsr_prod.storage.formats.shard_format import (
    BATCH_ROWS,
    DOCUMENTS_FILE,
    FORWARD_ARRAYS,
    IMPACTS_FOLDER,
    MATCHING_ARRAYS,
    array_name,
)


class Ours:
    """Options: ``min_terms`` (a count) and ``overlap_threshold`` (a share of the query's terms).

    A query is what a Searcher does with one whose terms it has looked up: match every shard, verify pages that were not
    read before, and fetch the ids of the hits.
    """

    version = f"format {INDEX_FORMAT}"

    @staticmethod
    def build(collection: Collection, folder: Path, _options: Mapping[str, Any]) -> float:
        """CPU seconds from rows to the arrays on disk, one thread.

        Tantivy's part of an index is not made. The kernels of the builder are compiled before the clock starts.
        """
        return build_folder(collection, folder, {})

    def __init__(self, _: Collection, folders: Path | Sequence[Path], options: Mapping[str, Any]) -> None:
        """Open one shard, or several as one index: their documents follow each other."""
        self._folders = [folders] if isinstance(folders, Path) else list(folders)
        self.readers = [
            ShardReader(OpenShard(folder, _manifest(folder), lazy=True), None, dk=1 << 30) for folder in self._folders
        ]
        self._threshold = {name: options[name] for name in ("min_terms", "overlap_threshold")}

    def sizes(self) -> dict[str, int]:
        """Bytes of the arrays, as in ``array_sizes``."""
        return array_sizes(self._folders)

    def prepare(self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], k: int) -> ShardQuery:
        """What a text or a vector becomes before shards see it: heaviest term first."""
        return to_shard_query(terms, weights, k, **self._threshold)

    def query(self, asked: ShardQuery, k: int) -> list[tuple[float, str]]:
        """One search over all shards."""
        found: list[tuple[float, str]] = []
        floor = 0.0
        for reader in self.readers:
            hits = reader.match(asked, floor)
            doc_id = reader.shard.documents.doc_id
            found += [(-score, doc_id(ordinal)) for score, ordinal in zip(hits.scores, hits.ordinals, strict=True)]
            if len(self.readers) > 1:
                found = sorted(found)[:k]
                floor = -found[-1][0] if len(found) == k else 0.0
        return found

    def decode(self, answer: list[tuple[float, str]]) -> tuple[list[int], list[float]]:
        """Numbers of the rows, and scores. The rows of a shard are numbered on from the shard before."""
        return [int(doc_id) for _, doc_id in answer], [-score for score, _ in answer]

    def touched(self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32]) -> tuple[int, int]:
        """Postings and bytes that a query reads."""
        return count_touched(self.readers, self.prepare(terms, weights, 10))


def to_shard_query(
    terms: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
    k: int,
    *,
    min_terms: int,
    overlap_threshold: float,
) -> ShardQuery:
    """Return the query of a shard, heaviest term first."""
    order = np.lexsort((terms, -weights))
    required = required_terms(len(terms), min_terms=min_terms, overlap_threshold=overlap_threshold)
    ids, ordered = terms[order].astype(np.int32), np.ascontiguousarray(weights[order])
    return ShardQuery(ids, ordered, np.ones(len(ids), np.uint8), required, k)


def array_sizes(folders: Sequence[Path]) -> dict[str, int]:
    """Return the bytes of the arrays of shards: ``matching``, and ``forward``, from which candidates are scored.

    An exact answer needs both, as it needs the whole index of a peer.
    """
    parts = {"matching": MATCHING_ARRAYS, "forward": FORWARD_ARRAYS}
    return {
        part: sum(_size(folder / array_name(name)) for folder in folders for name in names)
        for part, names in parts.items()
    }


def count_touched(readers: Sequence[ShardReader], asked: ShardQuery) -> tuple[int, int]:
    """Return the postings that a query reads, and bytes: at most 3 per posting, and 4 per run."""
    postings, runs, floor = 0, 0, 0.0
    best: list[float] = []
    for reader in readers:
        hits = reader.match(asked, floor)
        best = sorted(best + hits.scores, reverse=True)[:10]
        floor = best[-1] if len(best) == 10 and len(readers) > 1 else 0.0
        postings += hits.postings
        of_term = reader.shard.arrays.term_runs
        runs += int((of_term[1:][asked.ids].astype(np.int64) - of_term[:-1][asked.ids]).sum())
    return postings, 3 * postings + 4 * runs


def build_folder(collection: Collection, folder: Path, columns: Mapping[str, pa.Array]) -> float:
    """Build a shard without Tantivy's part; returns the CPU seconds of the arrays.

    Args:
        collection: the documents; their ids are the numbers of their rows, with zeros before them.
        folder: of the shard.
        columns: more columns of ``docs.arrow``, by row.
    """
    vectors = rows_as_vectors(collection)
    layout = ShardLayout(1 << 30, collection.vocabulary, (), ())
    start = time.process_time()
    (folder / IMPACTS_FOLDER).mkdir()
    forward = VectorSpill(folder / IMPACTS_FOLDER, collection.vocabulary, prefix="forward_")
    forward.add(vectors)
    write_arrays(folder, forward.finish(), layout)
    seconds = time.process_time() - start
    _write_documents(folder, len(vectors), columns)
    files = digest_files(folder, [path for path in folder.rglob("*") if path.is_file()])
    manifest = ShardManifest("0" * 64, len(vectors), len(vectors.terms), "base", {}, files)
    (folder / SHARD_FILE).write_bytes(canonical_json(manifest.to_json()))
    return seconds


def rows_as_vectors(collection: Collection) -> Vectors:
    """Return the rows as the builder has them, heaviest term first."""
    rows, terms = collection.terms.shape
    heaviest = np.argsort(-collection.impacts.astype(np.int16), axis=1, kind="stable")
    return Vectors(
        (np.arange(rows + 1) * terms).astype(np.uint32),
        np.take_along_axis(collection.terms, heaviest, 1).ravel().astype(np.uint16),
        np.take_along_axis(collection.impacts, heaviest, 1).ravel().astype(np.uint8),
    )


def _write_documents(folder: Path, documents: int, columns: Mapping[str, pa.Array]) -> None:
    """The stored part of a shard: row numbers as ids, and more columns."""
    fields = [pa.field("doc_id", pa.large_string()), *(pa.field(name, column.type) for name, column in columns.items())]
    schema = pa.schema(fields)
    with pa.OSFile(str(folder / DOCUMENTS_FILE), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for first in range(0, documents, BATCH_ROWS):
            rows = np.arange(first, min(first + BATCH_ROWS, documents))
            ids = pa.array([f"{row:09}" for row in rows.tolist()], pa.large_string())
            taken = [column.take(pa.array(rows)) for column in columns.values()]
            writer.write_batch(pa.record_batch([ids, *taken], schema=schema))
    (folder / PAGE_DIGESTS_FILE).write_bytes(page_digests(folder, [DOCUMENTS_FILE, *_arrays(folder)]))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _arrays(folder: Path) -> list[str]:
    return [f"{IMPACTS_FOLDER}/{path.name}" for path in (folder / IMPACTS_FOLDER).iterdir()]


def _manifest(folder: Path) -> ShardManifest:
    return ShardManifest.from_json(json.loads((folder / SHARD_FILE).read_bytes()))
