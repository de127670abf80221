"""The collections of the search benchmarks: drawn once, kept as ``.npy`` under the digest of what decides them.

    python -m benchmarks.search.data [--folder .bench] [--documents N] [--splade FILE.jsonl.gz]

``topics20`` (1M documents x 20 terms, 7-term queries) and ``topics120`` (250k x 120, 25 terms) are invented;
``splade7`` and ``splade25`` (1M x 20) are made from real query vectors: every second query of the file seeds documents,
the other half, cut to the 7 or 25 heaviest terms, are the queries. ``benchmarks.search.topics`` has the model.
Prints the share of documents that contain two or more of a query's terms, which is 1-2 % for real 7-term queries.

A collection's folder holds ``terms.npy`` uint16 [N, t], ``impacts.npy`` uint8 [N, t], ``labels.npy`` int32 [N] (true
topics; no engine is given them, except where the name of the row says so); queries and exact answers lie beside. Numpy
alone: the environments of the peers read this file too.
"""

import argparse
import gzip
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.search.topics import Chunk, Mixture, Sources, draw_chunks, draw_distinct, query_sources, topic_sources

__all__ = ["KS", "Collection", "Queries", "Spec", "default_specs", "draw", "make", "make_rows", "recall"]

VERSION = 2  # of the generator: part of every digest
VOCABULARY = 30_000
QUERIES = 640
KS = (10, 100)  # answers whose recall is measured


@dataclass(frozen=True, slots=True)
class Spec:
    """What decides a collection.

    Attributes:
        name: of the table's rows.
        documents: N.
        terms: distinct terms of a document.
        query_terms: most terms of a query.
        splade: file of real query vectors; None for invented topics.
        seed: of all randomness.
        queries: how many.
    """

    name: str
    documents: int
    terms: int
    query_terms: int
    splade: Path | None = None
    seed: int = 1
    queries: int = QUERIES

    def digest(self) -> str:
        """sha256 of what decides the documents: two specs that differ in their queries share documents."""
        source = None if self.splade is None else hashlib.sha256(self.splade.read_bytes()).hexdigest()
        identity = {"version": VERSION, "documents": self.documents, "terms": self.terms, "seed": self.seed}
        return hashlib.sha256(json.dumps({**identity, "splade": source}, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Queries:
    """CSR: float32 weights by term, heaviest first."""

    offsets: npt.NDArray[np.int64]
    terms: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        here = slice(self.offsets[i], self.offsets[i + 1])
        return self.terms[here], self.weights[here]

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any]]]) -> "Queries":
        """Sort each row by falling weight."""
        orders = [np.lexsort((terms, -weights)) for terms, weights in rows]
        return cls(
            np.cumsum([0, *(len(terms) for terms, _ in rows)]),
            np.concatenate([terms[o] for (terms, _), o in zip(rows, orders, strict=True)]).astype(np.int64),
            np.concatenate([weights[o] for (_, weights), o in zip(rows, orders, strict=True)]).astype(np.float32),
        )

    def top(self, count: int) -> "Queries":
        """Each query's ``count`` heaviest terms."""
        rows = [self[i] for i in range(len(self))]
        return Queries.from_rows([(terms[:count], weights[:count]) for terms, weights in rows])


class Collection:
    """A drawn collection, mapped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def digest(self) -> str:
        """Names the documents."""
        return self.folder.name

    @cached_property
    def terms(self) -> npt.NDArray[np.uint16]:
        """[N, t]."""
        return self._map("terms")

    @cached_property
    def impacts(self) -> npt.NDArray[np.uint8]:
        """[N, t]."""
        return self._map("impacts")

    @cached_property
    def labels(self) -> npt.NDArray[np.int32]:
        """[N]."""
        return self._map("labels")

    @property
    def vocabulary(self) -> int:
        """V; every term id lies below it."""
        return int(json.loads((self.folder / "collection.json").read_text())["vocabulary"])

    def __len__(self) -> int:
        return int(self.terms.shape[0])

    def queries(self, query_terms: int) -> Queries:
        """The queries of that length."""
        return Queries(*(self._map(f"queries{query_terms}_{part}") for part in ("offsets", "terms", "weights")))

    @cached_property
    def postings(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """Term-major copy, kept beside: offsets [V + 1], documents [P] rising in a term, impacts [P]."""
        if not (self.folder / "postings_impacts.npy").exists():
            flat = np.asarray(self.terms).ravel()
            order = np.argsort(flat, kind="stable")
            offsets = np.append(0, np.cumsum(np.bincount(flat, minlength=self.vocabulary))).astype(np.int64)
            save(self.folder / "postings_offsets.npy", offsets)
            save(self.folder / "postings_documents.npy", (order // self.terms.shape[1]).astype(np.int32))
            save(self.folder / "postings_impacts.npy", np.asarray(self.impacts).ravel()[order])
        return tuple(self._map(f"postings_{part}") for part in ("offsets", "documents", "impacts"))  # type: ignore[return-value]

    def scores(
        self, terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Exact scores [N] and shared terms [N] of one query, in float64."""
        offsets, documents, impacts = self.postings
        scores, shared = np.zeros(len(self)), np.zeros(len(self), np.int64)
        for term, weight in zip(terms, weights, strict=True):
            here = slice(offsets[term], offsets[term + 1])
            scores[documents[here]] += float(weight) * impacts[here]
            shared[documents[here]] += 1
        return scores, shared

    def truth(self, query_terms: int, ks: Sequence[int]) -> npt.NDArray[np.float64]:
        """What exact answers are judged by, [queries, ks + 2].

        The score of each query's k-th document (0 if fewer match), how many documents match, and how many of them
        share two or more terms.
        """
        path = self.folder / f"truth{query_terms}_{'_'.join(map(str, ks))}.npy"
        if not path.exists():
            queries = self.queries(query_terms)
            found = np.zeros((len(queries), len(ks) + 2))
            for i in range(len(queries)):
                scores, shared = self.scores(*queries[i])
                k = min(max(ks), len(scores))
                best = np.sort(np.partition(scores, len(scores) - k)[-k:])[::-1]
                found[i, :-2] = [best[min(k, len(best)) - 1] for k in ks]
                found[i, -2:] = np.count_nonzero(shared), np.count_nonzero(shared >= 2)
            save(path, found)
        return np.load(path)  # type: ignore[no-any-return]

    def score_of(
        self, documents: npt.NDArray[np.int64], terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float64]:
        """Exact scores of these documents alone."""
        table = np.zeros(self.vocabulary)
        table[terms] = weights
        return np.einsum("ij,ij->i", table[self.terms[documents]], self.impacts[documents].astype(np.float64))

    def _map(self, name: str) -> Any:
        return np.asarray(np.load(self.folder / f"{name}.npy", mmap_mode="r"))


def recall(
    collection: Collection,
    found: npt.NDArray[np.int64],
    query: tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]],
    *,
    k: int,
    floor: float,
    matching: int,
) -> float:
    """Share of the k best that were found; a document that scores as well as the k-th is as good as it.

    Args:
        collection: whose documents.
        found: int64 ordinals, at most ``k`` are looked at.
        query: terms and weights.
        k: how many are right, where so many match.
        floor: exact score of the k-th; 0 where fewer than ``k`` match.
        matching: documents with a score above 0.
    """
    if not matching:
        return 1.0
    scores = collection.score_of(np.unique(found[:k]), *query)
    return float(np.count_nonzero((scores >= floor * (1 - 1e-6)) & (scores > 0)) / min(k, matching))


def default_specs(splade: Path | None, documents: int | None = None) -> list[Spec]:
    """The four; ``documents`` replaces a million, and in proportion the 250,000."""
    million = documents or 1_000_000
    specs = [Spec("topics20", million, 20, 7), Spec("topics120", max(million // 4, 1_000), 120, 25)]
    if splade is not None:
        specs += [Spec("splade7", million, 20, 7, splade), Spec("splade25", million, 20, 25, splade)]
    return specs


def make(spec: Spec, folder: Path) -> Collection:
    """The collection, drawn if it is not there yet."""
    home = folder / "collections" / spec.digest()
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=home.parent))
        sources, _ = _material(spec)
        chunks = draw_chunks(sources, _mixture(spec), documents=spec.documents, terms=spec.terms, seed=spec.seed)
        make_rows(scratch, chunks, spec)
        try:
            scratch.rename(home)
        except OSError:  # another process was faster with the same bytes
            shutil.rmtree(scratch)
    collection = Collection(home)
    if not (home / f"queries{spec.query_terms}_weights.npy").exists():
        queries = draw_queries(spec)
        for part in ("offsets", "terms", "weights"):
            save(home / f"queries{spec.query_terms}_{part}.npy", getattr(queries, part))
    return collection


def make_rows(folder: Path, chunks: Iterator[Chunk], spec: Spec) -> None:
    """Write a collection's documents chunk by chunk."""
    shapes = {"terms": ("<u2", (spec.documents, spec.terms)), "impacts": ("u1", (spec.documents, spec.terms))}
    shapes["labels"] = ("<i4", (spec.documents,))  # type: ignore[assignment]
    arrays = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)
        for name, (dtype, shape) in shapes.items()
    }
    start = 0
    for chunk in chunks:
        stop = start + len(chunk.labels)
        for name, array in arrays.items():
            array[start:stop] = getattr(chunk, name)
        start = stop
    known = {**asdict(spec), "splade": str(spec.splade), "vocabulary": vocabulary_size(spec), "version": VERSION}
    (folder / "collection.json").write_text(json.dumps(known))


def draw(spec: Spec, first: int = 0) -> Iterator[Chunk]:
    """The documents without a folder, from chunk ``first`` on."""
    sources, _ = _material(spec)
    return draw_chunks(sources, _mixture(spec), documents=spec.documents, terms=spec.terms, seed=spec.seed, first=first)


def draw_queries(spec: Spec) -> Queries:
    """Distinct queries, in random order."""
    sources, real = _material(spec)
    generator = np.random.default_rng([spec.seed, 2, spec.query_terms])
    if real is not None:
        usable = [i for i in range(len(real)) if real.offsets[i + 1] - real.offsets[i] >= 2]
        chosen = np.random.default_rng([spec.seed, 2]).permutation(usable)[: spec.queries]
        return Queries.from_rows([real[i] for i in chosen]).top(spec.query_terms)
    labels = sources.main(spec.queries, generator)
    places = draw_distinct(sources, Mixture(0.65, 0.2), labels, spec.query_terms, generator)
    terms = sources.terms[places]
    weights = (generator.gamma(4.0, 0.5, terms.shape) * sources.heft[places] + 0.05).astype(np.float32)
    return Queries.from_rows(list(zip(terms, weights, strict=True)))


def vocabulary_size(spec: Spec) -> int:
    """V."""
    return VOCABULARY if spec.splade is None else len(_read(spec.splade)[1])


def save(path: Path, array: npt.NDArray[Any]) -> None:
    """Write whole or not at all."""
    scratch = path.with_name(f".{os.getpid()}.{path.name}")
    np.save(scratch, array)
    scratch.rename(path)


def _mixture(spec: Spec) -> Mixture:
    return Mixture(0.5, 0.25) if spec.splade is None else Mixture(0.6, 0.25)


def _material(spec: Spec) -> tuple[Sources, Queries | None]:
    """Sources of the documents, and the real queries that are not among them."""
    if spec.splade is None:
        return topic_sources(VOCABULARY, spec.seed, long=spec.terms > 60), None
    rows, vocabulary = _read(spec.splade)
    seeds = Queries.from_rows(rows[::2])
    return query_sources(seeds.offsets, seeds.terms, seeds.weights, len(vocabulary)), Queries.from_rows(rows[1::2])


def _read(path: Path) -> tuple[list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]], dict[str, int]]:
    """Query vectors, JSON Lines with ``vector`` {term: weight x 100}, and the ids given to their terms."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        vectors = [json.loads(line)["vector"] for line in file]
    ids = {term: i for i, term in enumerate(sorted({term for vector in vectors for term in vector}))}
    rows = [
        (np.array([ids[term] for term in vector], np.int64), np.array(list(vector.values()), np.float32) / 100)
        for vector in vectors
        if vector
    ]
    return rows, ids


def main(argv: Sequence[str]) -> int:
    """Draw all of them and say what they are like."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(".bench"))
    parser.add_argument("--documents", type=int, default=None)
    parser.add_argument("--splade", type=Path, default=None, help="query vectors, .jsonl.gz")
    asked = parser.parse_args(argv)
    for spec in default_specs(asked.splade, asked.documents):
        collection = make(spec, asked.folder)
        share = collection.truth(spec.query_terms, KS)[:, -1] / len(collection)
        print(
            f"{spec.name}: {collection.digest[:12]}, {len(collection):,} x {spec.terms}, "
            f"{spec.query_terms}-term queries; "
            f"{100 * share.mean():.2f} % share two or more (median {100 * float(np.median(share)):.2f} %)"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
