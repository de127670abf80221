"""The public calls of a published index, behind the protocol of ``benchmarks.search.worker``.

The index is complete: impact arrays, the Tantivy index, ids and a publication. It stores no texts, and neither do the
indexes of the peers. ``search_vector`` returns hits as Python
objects, as most peers do; ``search_arrays`` returns arrays, without result objects, and stands in a row of its own.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.search.data import Collection
from benchmarks.search.ours import array_sizes, count_touched, rows_as_vectors, to_shard_query
from lsr_prod.indexing.base_shard import build_shard
from lsr_prod.indexing.index_plan import ShardLayout, ShardPlan
from lsr_prod.indexing.publish import Publisher
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod.storage.formats.bundle_format import (
    BUNDLE_FILE,
    CARD_FILE,
    VOCABULARY_FILE,
    Bundle,
    EncoderCard,
    digest_bundle,
)
from lsr_prod.storage.formats.digests import canonical_json, digest_json, record_bytes
from lsr_prod.storage.formats.index_format import INDEX_FORMAT, IndexVersion

BUCKETS = 16
ALL_TERMS = 1 << 30


class Published:
    """Options: ``call`` (``vector`` or ``arrays``), ``min_terms``, ``overlap_threshold``, ``scan_share`` and ``qk`` of
    a query. The arrays of queries of ``search_arrays`` are cut to ``qk`` terms when they are prepared.
    """

    version = f"format {INDEX_FORMAT} published"

    @staticmethod
    def build(collection: Collection, folder: Path, _options: Mapping[str, Any]) -> float:
        """Return the CPU seconds from rows of the sparse table, in memory, to a published index; one thread.

        The rows are made before the clock starts, as the arrays of peers are.
        """
        buckets = list(_buckets(collection))
        start = time.process_time()
        digest, card = write_bundle(folder, collection.vocabulary)
        terms = int(collection.terms.shape[1])
        layout = ShardLayout(terms, collection.vocabulary, (), ())
        plan = ShardPlan(
            digest_json([collection.digest, layout.identity()]),
            Store("memory"),
            0,
            tuple(range(BUCKETS)),
            len(collection),
            layout,
        )
        shard = build_shard(plan, buckets, folder).manifest
        version = IndexVersion((shard,), digest, card.vocabulary_sha256, 1.0, terms, "memory", 0, (), ())
        Store(str(folder)).put_new(f"versions/{version.sha}.json", canonical_json(version.to_json()))
        Publisher(folder).publish(version.sha, None)
        return time.process_time() - start

    def __init__(self, _collection: Collection, folder: Path, options: Mapping[str, Any]) -> None:
        """Open the index as a backend does."""
        self.options = dict(options)
        self._searcher = Searcher.open(folder)
        self._pool = ThreadPoolExecutor()
        self.batch = self._search_batch if options["call"] == "arrays" else None

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the matching arrays, of the forward copy, and of all other files."""
        readers = self._searcher.snapshot.readers.values()
        parts = array_sizes([reader.shard.folder for reader in readers])
        files = [path for reader in readers for path in reader.shard.folder.rglob("*") if path.is_file()]
        return {**parts, "Tantivy and documents": sum(path.stat().st_size for path in files) - sum(parts.values())}

    def prepare(self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], _k: int) -> Any:
        """Return a dict for ``search_vector``, or arrays of one query for ``search_arrays``, and the keywords."""
        keywords = {name: self.options[name] for name in ("min_terms", "overlap_threshold")}
        if "scan_share" in self.options:
            keywords["scan_share"] = self.options["scan_share"]
        qk = self.options.get("qk") or len(terms)
        if self.options["call"] == "vector":
            vector = dict(zip(terms.tolist(), weights.tolist(), strict=True))
            return vector, keywords if qk >= len(terms) else {**keywords, "qk": qk}
        best = np.lexsort((terms, -weights))[:qk]
        arrays = np.array([0, len(best)], np.int64), terms[best].astype(np.int32), np.ascontiguousarray(weights[best])
        return arrays, keywords

    def query(self, asked: Any, k: int) -> Any:
        """Search once."""
        query, keywords = asked
        if self.options["call"] == "vector":
            return self._searcher.search_vector(query, k, **keywords)
        return self._searcher.search_arrays(*query, k, **keywords)

    def _search_batch(self, asked: Sequence[Any], k: int, threads: int) -> int:
        """Search with many queries in one call of ``search_arrays`` per thread, and return their number."""
        if threads == 1:
            self._searcher.search_arrays(*_join(asked), k, **asked[0][1])
            return len(asked)
        cuts = [len(asked) * thread // threads for thread in range(threads + 1)]
        parts = [asked[first:stop] for first, stop in pairwise(cuts)]
        return sum(self._pool.map(lambda part: self._search_batch(part, k, 1), parts))

    def decode(self, answer: Any) -> tuple[list[int], list[float]]:
        """Return numbers of rows and scores."""
        if self.options["call"] == "vector":
            return [int(hit.doc_id) for hit in answer.hits], [hit.score for hit in answer.hits]
        return [int(doc_id) for doc_id in answer.doc_ids()[0]], answer.scores[0].tolist()

    def touched(self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32]) -> tuple[int, int]:
        """Return the postings and the bytes that a query reads."""
        keywords = {name: self.options[name] for name in ("min_terms", "overlap_threshold")}
        readers = list(self._searcher.snapshot.readers.values())
        return count_touched(readers, to_shard_query(terms, weights, 10, **keywords))


def _join(asked: Sequence[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return the arrays of several queries as one batch."""
    lengths = [len(ids) for (_, ids, _), _ in asked]
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    return offsets, np.concatenate([a[1] for a, _ in asked]), np.concatenate([a[2] for a, _ in asked])


def _buckets(collection: Collection) -> Iterator[pa.Table]:
    """Yield the rows as a sparse table stores them, a table per bucket."""
    vectors = rows_as_vectors(collection)
    count = len(collection)
    for bucket in range(BUCKETS):
        mine = np.arange(bucket, count, BUCKETS)
        some = vectors.take(mine)
        offsets = pa.array(some.offsets.astype(np.int32))
        yield pa.table(
            {
                "doc_id": pa.array([str(row) for row in mine.tolist()]),
                "terms": pa.ListArray.from_arrays(offsets, pa.array(some.terms.astype(np.int32))),
                "impacts": pa.ListArray.from_arrays(offsets, pa.array(some.impacts.astype(np.int16))),
            }
        )


def write_bundle(index: Path, vocabulary: int) -> tuple[str, EncoderCard]:
    """Write a bundle without a graph, which is enough for an index that is searched with vectors."""
    terms = [f"t{term}" for term in range(vocabulary)]
    folder = index / "bundles" / "draft"
    folder.mkdir(parents=True)
    card = EncoderCard(architecture="None", vocabulary_size=vocabulary, vocabulary_sha256=digest_json(terms))
    (folder / VOCABULARY_FILE).write_bytes(record_bytes(terms))
    (folder / CARD_FILE).write_bytes(card.to_bytes())
    bundle = Bundle(
        files=digest_bundle(folder), precision="fp32", top_k=64, model_digest="0" * 64, inputs=("input_ids",)
    )
    (folder / BUNDLE_FILE).write_bytes(bundle.to_bytes())
    folder.rename(index / "bundles" / bundle.digest)
    return bundle.digest, card
