"""Adapter for lsr-benchmark (reneuir/lsr-benchmark): index precomputed embeddings, search, write a run.

    python -m benchmarks.search.lsr_benchmark --dataset DATASET --embedding EMBEDDING --output FOLDER [--k 10]
        [--overlap-threshold 0.0]

The arguments and the files are those of the other engines of lsr-benchmark, so the command can be used as a retrieval
approach (``lsr-benchmark retrieval``). ``EMBEDDING`` is a folder, or a model that lsr-benchmark downloads (for example
``naver/splade-v3``); then the package lsr-benchmark has to be installed and its hub reachable. A folder has, for
``doc`` and ``query``, ``<kind>/<kind>-embeddings.npz`` (``data``, ``indices``, ``indptr``; indices are numbers or
tokens) and ``<kind>/<kind>-ids.txt``. ``DATASET`` names the collection; it is needed for downloads only.

Documents are quantized to 8 bits with one scale, as in every index of lsr_prod, and published as one shard;
``Searcher.search_vector`` answers one query after the other on one thread, with the query's weights as they are. Scores
of the run are those of the quantized documents.

Writes ``run.txt.gz`` (TREC) and ``measurements.json``. With tirex_tracker, which lsr-benchmark installs, also
``index-metadata.yml`` and ``retrieval-metadata.yml``, as lsr-benchmark evaluates them.

``RESULT``: documents, queries, terms, index seconds, ms per query (p50, p95), bytes of the index.
"""

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.search.published import write_bundle
from lsr_prod.encoding.tables.impact_scale import impact_scale
from lsr_prod.indexing.base_shard import build_shard
from lsr_prod.indexing.index_plan import ShardLayout, ShardPlan
from lsr_prod.indexing.publish import Publisher
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import canonical_json, digest_json
from lsr_prod.storage.formats.index_format import IndexVersion
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.storage.formats.table_format import quantize

KINDS = ("doc", "query")
BITS = 8


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors of documents or queries, terms as numbers or tokens.

    Attributes:
        ids: n ids.
        offsets: int64 [n + 1].
        terms: [nnz], numbers or strings.
        weights: float32 [nnz].
    """

    ids: list[str]
    offsets: npt.NDArray[np.int64]
    terms: npt.NDArray[Any]
    weights: npt.NDArray[np.float32]


def main(argv: list[str] | None = None) -> int:
    """Run the adapter; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, help="a collection of lsr-benchmark, or a folder")
    parser.add_argument("--embedding", default="naver/splade-v3", help="a folder, or a model of lsr-benchmark")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run")
    parser.add_argument("--k", type=int, default=10, help="documents per query")
    parser.add_argument("--overlap-threshold", type=float, default=0.0, help="share of the query's terms")
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    documents, queries = (load(options.dataset, options.embedding, kind) for kind in KINDS)
    with tempfile.TemporaryDirectory() as scratch:
        with tracked(options.output / "index-metadata.yml"):
            began = time.perf_counter()
            vocabulary = {term: number for number, term in enumerate(np.unique(documents.terms).tolist())}
            build(documents, vocabulary, Path(scratch))
            index_s = time.perf_counter() - began
        size = sum(path.stat().st_size for path in Path(scratch).rglob("*") if path.is_file())
        with Searcher.open(Path(scratch)) as searcher, tracked(options.output / "retrieval-metadata.yml"):
            rankings, seconds = search(searcher, queries, vocabulary, options.k, options.overlap_threshold)
    write_run(options.output / "run.txt.gz", rankings)
    p50, p95 = (round(1000 * float(np.percentile(seconds, share)), 4) for share in (50, 95))
    values = {
        "dataset": options.dataset,
        "embedding": options.embedding,
        "documents": len(documents.ids),
        "queries": len(queries.ids),
        "terms": len(vocabulary),
        "postings": len(documents.terms),
        "index_s": round(index_s, 3),
        "query_ms_p50": p50,
        "query_ms_p95": p95,
        "index_bytes": size,
        "k": options.k,
        "overlap_threshold": options.overlap_threshold,
    }
    (options.output / "measurements.json").write_text(json.dumps(values, indent=2))
    print(f"RESULT {json.dumps(values)}")
    return 0


def load(dataset: str, embedding: str, kind: str) -> Embeddings:
    """Read the embeddings of a folder, or those that lsr-benchmark downloads.

    Args:
        dataset: collection, for a download.
        embedding: folder or model.
        kind: ``doc`` or ``query``.
    """
    folder = Path(embedding) / kind
    if (folder / f"{kind}-embeddings.npz").exists():
        with np.load(folder / f"{kind}-embeddings.npz", allow_pickle=False) as arrays:
            found = arrays["indptr"].astype(np.int64), arrays["indices"], arrays["data"].astype(np.float32)
        ids = (folder / f"{kind}-ids.txt").read_text(encoding="utf-8").strip("\n").split("\n")
        if len(ids) != len(found[0]) - 1:
            raise SystemExit(
                f"{folder} has {len(found[0]) - 1} vectors and {len(ids)} ids; they do not belong together"
            )
        return Embeddings(ids, *found)
    if Path(embedding).is_dir():
        raise SystemExit(f"{folder} has no {kind}-embeddings.npz; give a folder of embeddings of lsr-benchmark")
    try:
        from lsr_benchmark.irds import embeddings
    except ImportError as error:
        raise SystemExit(f"{embedding} is no folder, and lsr-benchmark is not installed ({error})") from error
    rows = embeddings(dataset, embedding, kind)
    lengths = [len(terms) for _, terms, _ in rows]
    return Embeddings(
        [str(row_id) for row_id, _, _ in rows],
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([terms for _, terms, _ in rows]),
        np.concatenate([values for _, _, values in rows]).astype(np.float32),
    )


def as_batch(vectors: Embeddings, vocabulary: dict[Any, int]) -> SparseBatch:
    """Return vectors over a vocabulary, heaviest term first; other terms and weights of 0 or less are left out."""
    known = np.array([vocabulary.get(term, -1) for term in vectors.terms.tolist()], np.int64)
    row = np.repeat(np.arange(len(vectors.ids)), np.diff(vectors.offsets))
    kept = (known >= 0) & (vectors.weights > 0)
    row, known, weights = row[kept], known[kept], vectors.weights[kept]
    order = np.lexsort((known, -weights, row))
    lengths = np.bincount(row, minlength=len(vectors.ids))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return SparseBatch(offsets, known[order].astype(np.int32), weights[order])


def build(documents: Embeddings, vocabulary: dict[Any, int], folder: Path) -> None:
    """Quantize documents and publish them as an index of one shard."""
    vectors = as_batch(documents, vocabulary)
    step = impact_scale(vectors.weights, BITS, documents=len(vectors)).step
    impacts, _ = quantize(vectors.weights, step, BITS)
    longest = int(np.diff(vectors.offsets).max(initial=1))
    digest, card = write_bundle(folder, len(vocabulary))
    layout = ShardLayout(longest, len(vocabulary), (), ())
    # One bucket, ids in the order of their bytes, as in a sparse table.
    order = np.argsort(np.array([doc_id.encode() for doc_id in documents.ids], object), kind="stable")
    lengths = np.diff(vectors.offsets)[order]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(vectors.offsets[:-1][order], lengths) + np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    bounds = pa.array(offsets.astype(np.int32))
    rows = pa.table(
        {
            "doc_id": pa.array([documents.ids[i] for i in order.tolist()]),
            "terms": pa.ListArray.from_arrays(bounds, pa.array(vectors.terms[places])),
            "impacts": pa.ListArray.from_arrays(bounds, pa.array(impacts[places].astype(np.int16))),
        }
    )
    sha = digest_json([layout.identity(), len(documents.ids)])
    shard = build_shard(ShardPlan(sha, Store("memory"), 0, (0,), len(rows), layout), [rows], folder).manifest
    version = IndexVersion((shard,), digest, card.vocabulary_sha256, step, longest, "memory", 0, (), ())
    Store(str(folder)).put_new(f"versions/{version.sha}.json", canonical_json(version.to_json()))
    Publisher(folder).publish(version.sha, None)


def search(
    searcher: Searcher, queries: Embeddings, vocabulary: dict[Any, int], k: int, threshold: float
) -> tuple[dict[str, list[tuple[str, float]]], list[float]]:
    """Return the ranking of every query, and the seconds of each."""
    vectors = as_batch(queries, vocabulary)
    asked = [dict(zip(*(part.tolist() for part in vectors.row(i)), strict=True)) for i in range(len(vectors))]
    rankings, seconds = {}, []
    for query_id, vector in zip(queries.ids, asked, strict=True):
        began = time.perf_counter()
        hits = searcher.search_vector(vector, k, overlap_threshold=threshold).hits if vector else []
        seconds.append(time.perf_counter() - began)
        rankings[query_id] = [(hit.doc_id, hit.score) for hit in hits]
    return rankings, seconds


def write_run(path: Path, rankings: dict[str, list[tuple[str, float]]]) -> None:
    """Write a TREC run."""
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for query_id, ranking in rankings.items():
            for rank, (doc_id, score) in enumerate(ranking, start=1):
                file.write(f"{query_id} Q0 {doc_id} {rank} {score:.6f} lsr_prod\n")


@contextmanager
def tracked(path: Path) -> Iterator[None]:
    """Measure a block with tirex_tracker if it is installed, as the other engines do."""
    try:
        from tirex_tracker import ExportFormat, tracking
    except ImportError:
        yield
        return
    with tracking(export_file_path=path, export_format=ExportFormat.IR_METADATA):
        yield


if __name__ == "__main__":
    raise SystemExit(main())
