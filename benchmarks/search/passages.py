"""A collection of real sparse vectors: passages and queries, encoded with ``splade-tiny``.

    python -m benchmarks.search.passages DATA [--folder .bench]

Documents are SciFact abstracts, MS MARCO passages and paragraphs of wikitext-2 in random order, with their 64 heaviest
terms; a document of fewer terms is left out. Queries are SciFact claims and MS MARCO queries. The model is small: its
vectors are real, and less selective than those of a large model. The folder has the layout of
``benchmarks.search.data``, and ``make`` finds it again under the digest of texts, model and settings.
"""

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.search.data import KS, Collection, Queries, save
from lsr_prod.encoding.tables.impact_scale import impact_scale
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.storage.formats.table_format import quantize
from quickstart.models import model_folder

__all__ = ["QUERIES", "TERMS", "make_passages"]

VERSION = 1
MODEL = "splade-tiny"
TERMS = 64  # per document
QUERIES = 640
WORDS = 20  # a paragraph of wikitext has at least so many
SEED = 1


def make_passages(data: Path, folder: Path, query_terms: int) -> Collection:
    """Return the collection, encoded if it is not there yet, with its queries cut to the heaviest terms.

    Args:
        data: folder with ``scifact``, ``msmarco_5k`` and ``wikitext2``.
        folder: benchmark folder, which holds ``collections``.
        query_terms: most terms of a query.
    """
    documents, queries = list(_documents(data)), list(_queries(data))
    identity = [VERSION, MODEL, model_folder(MODEL).name, TERMS, QUERIES, SEED, documents, queries]
    home = folder / "collections" / hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=home.parent))
        _encode(documents, queries, scratch)
        shutil.rmtree(scratch / "bundle")
        scratch.rename(home)
    collection = Collection(home)
    if not (home / f"queries{query_terms}_weights.npy").exists():
        for part, array in zip(
            ("offsets", "terms", "weights"), _parts(collection.queries(0).top(query_terms)), strict=True
        ):
            save(home / f"queries{query_terms}_{part}.npy", array)
    return collection


def _parts(queries: Queries) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return queries.offsets, queries.terms, queries.weights


def _encode(documents: Sequence[str], queries: Sequence[str], folder: Path) -> None:
    """Write the arrays of the collection; ``queries0`` are the whole queries."""
    from lsr_prod.config import ExportSettings  # a stored collection is read without torch
    from lsr_prod.inference import BundleEncoder
    from lsr_prod.model.export import export_bundle

    export_bundle(ExportSettings(model=str(model_folder(MODEL)), output=str(folder / "bundle"), top_k=256))
    encoder = BundleEncoder(folder / "bundle")
    vectors = encoder.encode(documents, kind="document", top_k=TERMS)
    long = np.flatnonzero(np.diff(vectors.offsets) == TERMS)
    vectors = vectors.take(np.random.default_rng(SEED).permutation(long))
    terms, impacts = _rows(vectors)
    save(folder / "terms.npy", terms)
    save(folder / "impacts.npy", impacts)
    save(folder / "labels.npy", np.zeros(len(terms), np.int32))
    encoded = encoder.encode(queries, kind="query")
    rows = [encoded.row(i) for i in range(len(encoded))]
    whole = Queries.from_rows([row for row in rows if len(row[0]) > 1][:QUERIES])
    for part, array in zip(("offsets", "terms", "weights"), _parts(whole), strict=True):
        save(folder / f"queries0_{part}.npy", array)
    known = {"name": "passages", "model": MODEL, "vocabulary": encoder.card.vocabulary_size, "version": VERSION}
    (folder / "collection.json").write_text(json.dumps({**known, "left_out": len(documents) - len(terms)}))


def _rows(vectors: SparseBatch) -> tuple[np.ndarray, np.ndarray]:
    """Return terms, rising, and impacts of 8 bits, both [N, t]."""
    impacts, _ = quantize(vectors.weights, impact_scale(vectors.weights, 8, documents=len(vectors)).step, 8)
    terms = vectors.terms.reshape(-1, TERMS)
    order = np.argsort(terms, axis=1)
    rows = np.take_along_axis(impacts.reshape(-1, TERMS), order, 1)
    return np.take_along_axis(terms, order, 1).astype("<u2"), rows.astype("u1")


def _documents(data: Path) -> Iterator[str]:
    for name in ("scifact", "msmarco_5k"):
        for row in _lines(data / name / "corpus.jsonl"):
            yield f"{row.get('title', '')} {row['text']}".strip()
    for line in (data / "wikitext2" / "wiki.train.tokens").read_text("utf-8").splitlines():
        if len(line.split()) >= WORDS:
            yield line.strip()


def _queries(data: Path) -> Iterator[str]:
    found = [row["text"] for name in ("scifact", "msmarco_5k") for row in _lines(data / name / "queries.jsonl")]
    for i in np.random.default_rng(SEED).permutation(len(found)).tolist():
        yield found[i]


def _lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def main(argv: Sequence[str]) -> int:
    """Encode the collection and print its size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(".bench"))
    asked = parser.parse_args(argv)
    collection = make_passages(asked.data, asked.folder, 25)
    share = collection.truth(25, KS)[:, -1].mean() / len(collection)
    known = json.loads((collection.folder / "collection.json").read_text())
    lengths = np.diff(collection.queries(0).offsets)
    print(
        f"{len(collection):,} documents x {TERMS} terms ({known['left_out']:,} shorter ones left out), {len(lengths)} "
        f"queries of {np.median(lengths):.0f} terms (median); {100 * share:.1f} % share two or more of 25 terms"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
