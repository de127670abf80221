"""The peers that run in our own environment, behind the protocol of ``benchmarks.search.worker``.

Tantivy ranks with BM25 over the term ids as words (each query term boosted by its weight) or finds the documents that
share two terms; ``Csc`` is what bm25s does: sum whole posting lists into an array of N scores; ``Scipy`` multiplies
matrices.
"""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import scipy
import tantivy
from scipy.sparse import csr_matrix

from benchmarks.search.data import Collection, save

Asked = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]
STEP = 1 << 14  # rows turned into Python objects at a time
HEAP = 1 << 30  # bytes; Tantivy starts a new segment when it is full


class Tantivy:
    """Options: ``mode``, of "or", "two" (count of the documents that share two terms) and "two ranked".

    "two ranked" fetches the ids of those documents and scores them from their vectors: the whole answer.
    """

    version = f"tantivy {tantivy.__version__} freq"

    @staticmethod
    def build(collection: Collection, folder: Path, _options: Mapping[str, Any]) -> float:
        """Seconds from Tantivy's documents to a committed index with one segment thread."""
        start = time.perf_counter()
        schema = tantivy.SchemaBuilder()
        # Frequencies are what its block-max skipping needs.
        schema.add_text_field("terms", tokenizer_name="whitespace", index_option="freq")
        schema.add_unsigned_field("ordinal", fast=True)
        writer = tantivy.Index(schema.build(), path=str(folder)).writer(heap_size=HEAP, num_threads=1)
        names = [str(term) for term in range(collection.vocabulary)]
        for first in range(0, len(collection), STEP):
            before = time.perf_counter()
            documents = []
            for row, terms in enumerate(collection.terms[first : first + STEP].tolist(), first):
                documents.append(tantivy.Document())
                documents[-1].add_unsigned("ordinal", row)  # the constructor's keywords would make a signed integer
                documents[-1].add_text("terms", " ".join([names[term] for term in terms]))
            start += time.perf_counter() - before
            for document in documents:
                writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        return time.perf_counter() - start

    def __init__(self, collection: Collection, folder: Path, options: Mapping[str, Any]) -> None:
        self._mode = options["mode"]
        self._folder = folder
        self._index = tantivy.Index.open(str(folder))
        self._searcher = self._index.searcher()
        self._rows = collection.terms, collection.impacts
        self._weights = _ThreadArrays(collection.vocabulary)

    def sizes(self) -> dict[str, int]:
        """Bytes."""
        return {"index": sum(path.stat().st_size for path in self._folder.iterdir())}

    def prepare(self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], k: int) -> Any:
        """The query tree, the vector, and the number of hits to request (all matches in the modes with two terms)."""
        clauses = [self._clause(str(term), float(weight)) for term, weight in zip(terms, weights, strict=True)]
        if self._mode == "or":
            return tantivy.Query.boolean_query(clauses), terms, weights, k
        two = tantivy.Query.boolean_query(clauses, minimum_number_should_match=min(2, len(clauses)))
        matched = self._searcher.search(two, limit=1, count=True).count
        return two, terms, weights, max(1, matched)

    def query(self, asked: Any, k: int) -> Any:
        """One search; hits and scores, or a count."""
        tree, terms, weights, limit = asked
        if self._mode == "two":
            return self._searcher.search(tree, limit=1, count=True).count
        found = self._searcher.search(tree, limit=limit, count=False).hits
        ordinals = self._searcher.fast_field_values("ordinal", [address for _, address in found])
        if self._mode == "or":
            return ordinals, [score for score, _ in found]
        rows = np.array(ordinals, np.int64)
        scores = _score_rows(*self._rows, rows, terms, weights, self._weights.get())
        best = np.argsort(-scores, kind="stable")[:k]
        return rows[best], scores[best]

    def decode(self, answer: Any) -> tuple[Any, Any]:
        """Ordinals and scores; none of a count."""
        return ([], []) if self._mode == "two" else answer

    def _clause(self, term: str, weight: float) -> tuple[Any, Any]:
        query = tantivy.Query.term_query(self._index.schema, "terms", term, index_option="freq")
        return tantivy.Occur.Should, tantivy.Query.boost_query(query, weight) if self._mode == "or" else query


class Csc:
    """Term at a time over postings in two flat arrays, exact."""

    version = "1"

    @staticmethod
    def build(collection: Collection, folder: Path, _options: Mapping[str, Any]) -> float:
        """Seconds from rows to arrays on disk."""
        start = time.perf_counter()
        flat = collection.terms.ravel()
        order = np.argsort(flat, kind="stable")
        counts = np.bincount(flat, minlength=collection.vocabulary)
        save(folder / "offsets.npy", np.append(0, np.cumsum(counts)).astype(np.int64))
        save(folder / "documents.npy", (order // collection.terms.shape[1]).astype(np.int32))
        save(folder / "impacts.npy", collection.impacts.ravel()[order].astype(np.float32))
        return time.perf_counter() - start

    def __init__(self, collection: Collection, folder: Path, _options: Mapping[str, Any]) -> None:
        self._folder = folder
        self._arrays = _load(folder)
        self._scores = _ThreadArrays(len(collection))

    def sizes(self) -> dict[str, int]:
        """Bytes."""
        return {"index": sum(path.stat().st_size for path in self._folder.glob("*.npy"))}

    def prepare(self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], _k: int) -> Asked:
        """Return the arrays in contiguous memory."""
        return np.ascontiguousarray(terms), np.ascontiguousarray(weights)

    def query(self, asked: Asked, k: int) -> Any:
        """One search."""
        return _add_lists(*self._arrays, *asked, self._scores.get(), k)

    def decode(self, answer: Any) -> tuple[Any, Any]:
        """Best first."""
        return _best_first(*answer)

    def touched(self, terms: npt.NDArray[np.int64], _weights: npt.NDArray[np.float32]) -> tuple[int, int]:
        """Postings, and the bytes of them and of all scores (filled, added to, and searched)."""
        offsets = self._arrays[0]
        postings = int((offsets[terms + 1] - offsets[terms]).sum())
        return postings, 8 * postings + 8 * len(self._scores.get())


class Scipy:
    """A row vector times the term-major matrix, over the arrays of ``Csc``."""

    version = f"scipy {scipy.__version__}"

    @staticmethod
    def build(collection: Collection, folder: Path, options: Mapping[str, Any]) -> float:
        """Seconds from rows to arrays on disk."""
        return Csc.build(collection, folder, options)

    def __init__(self, collection: Collection, folder: Path, _options: Mapping[str, Any]) -> None:
        offsets, documents, impacts = _load(folder)
        self._folder = folder
        self._vocabulary = collection.vocabulary
        shape = (collection.vocabulary, len(collection))
        self._matrix = csr_matrix((impacts, documents, offsets.astype(np.int32)), shape=shape, copy=False)

    def sizes(self) -> dict[str, int]:
        """Bytes."""
        return {"index": sum(path.stat().st_size for path in self._folder.glob("*.npy"))}

    def prepare(self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32], _k: int) -> Any:
        """A matrix of one row."""
        return csr_matrix((weights, terms.astype(np.int32), [0, len(terms)]), shape=(1, self._vocabulary))

    def query(self, asked: Any, k: int) -> Any:
        """One search."""
        scores = asked @ self._matrix
        k = min(k, scores.nnz)
        best = np.argpartition(scores.data, scores.nnz - k)[scores.nnz - k :] if k else np.empty(0, np.int64)
        return scores.indices[best], scores.data[best]

    def decode(self, answer: Any) -> tuple[Any, Any]:
        """Best first."""
        return _best_first(*answer)


class _ThreadArrays:
    """One float32 array of zeros per thread, all of the same length."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._local = threading.local()

    def get(self) -> npt.NDArray[np.float32]:
        """Return the array of the calling thread."""
        if not hasattr(self._local, "array"):
            self._local.array = np.zeros(self._length, np.float32)
        array: npt.NDArray[np.float32] = self._local.array
        return array


def _best_first(ids: npt.NDArray[Any], scores: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    order = np.argsort(-scores, kind="stable")
    return ids[order], scores[order]


def _load(folder: Path) -> tuple[Any, Any, Any]:
    return tuple(
        np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in ("offsets", "documents", "impacts")
    )  # type: ignore[return-value]


@numba.njit(nogil=True, cache=True)
def _score_rows(terms: Any, impacts: Any, rows: Any, asked: Any, weights: Any, table: Any) -> Any:
    """Scores of some documents from their vectors; ``table`` [V] is zeros before and after."""
    for i in range(len(asked)):
        table[asked[i]] = weights[i]
    scores = np.empty(len(rows), np.float32)
    for i in range(len(rows)):
        score = np.float32(0)
        for j in range(terms.shape[1]):
            score += table[terms[rows[i], j]] * np.float32(impacts[rows[i], j])
        scores[i] = score
    for i in range(len(asked)):
        table[asked[i]] = 0
    return scores


@numba.njit(nogil=True, cache=True)
def _add_lists(offsets: Any, documents: Any, impacts: Any, asked: Any, weights: Any, scores: Any, k: int) -> Any:
    """Sum the posting lists, then keep the best k in a min-heap; ``scores`` [N] is overwritten."""
    scores[:] = 0
    for i in range(len(asked)):
        weight = weights[i]
        for p in range(offsets[asked[i]], offsets[asked[i] + 1]):
            scores[documents[p]] += weight * impacts[p]
    heap, ids, filled = np.zeros(k, np.float32), np.zeros(k, np.int64), 0
    floor = np.float32(0)
    for document in range(len(scores)):
        score = scores[document]
        if score <= floor:
            continue
        if filled < k:  # sift up from the end
            place = filled
            filled += 1
            while place > 0 and score < heap[(place - 1) >> 1]:
                parent = (place - 1) >> 1
                heap[place], ids[place] = heap[parent], ids[parent]
                place = parent
        else:  # sift down from the root
            place = 0
            while 2 * place + 1 < k:
                child = 2 * place + 1
                if child + 1 < k and heap[child + 1] < heap[child]:
                    child += 1
                if heap[child] >= score:
                    break
                heap[place], ids[place] = heap[child], ids[child]
                place = child
        heap[place], ids[place] = score, document
        if filled == k:
            floor = heap[0]
    return ids[:filled], heap[:filled]
