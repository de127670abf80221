"""Quality of the forms of a model in the encoding benchmark: nDCG@10, and the overlap with torch's vectors."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np

from benchmarks.encode.forms import FORMS, PEER_FORMS, ROOT, peer_spec, read_texts
from benchmarks.encode.models import MAX_LENGTH
from lsr_prod import SparseEncoder
from lsr_prod.evaluation.collection import read_judged
from lsr_prod.inference import BundleEncoder
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.storage.formats.sparse import SparseBatch

NDCG = ir_measures.nDCG @ 10


def quality(
    folder: Path,
    model: Path,
    bundles: Mapping[tuple[str, str], Path],
    *,
    peer: Path | None,
    python: str | None,
    limit: int,
) -> dict[str, Any]:
    """nDCG@10 of torch, our bundles and the peer's 8-bit forms, brute force over the collection, and our overlap."""
    judged = read_judged(folder / "queries.jsonl", folder / "qrels" / "test.tsv")
    with (folder / "corpus.jsonl").open(encoding="utf-8") as file:
        ids = [json.loads(line)["_id"] for line in file][:limit]
    texts, queries = read_texts(folder / "corpus.jsonl")[:limit], list(judged.queries.values())
    encoder = SparseEncoder.load(model)
    vectors = {"torch": (encoder.encode(texts, batch_size=8), encoder.encode(queries, "query"))}
    for form in FORMS:
        bundle = BundleEncoder(bundles[model.name, form])
        vectors[form] = bundle.encode(texts, kind="document"), bundle.encode(queries, kind="query")
    size = encoder.card.vocabulary_size
    sides = {name: (documents.dense(size), asked.dense(size)) for name, (documents, asked) in vectors.items()}
    if peer is not None and python is not None:
        for name in PEER_FORMS:
            if "8-bit" in name:
                sides[f"peer {name}"] = peer_vectors(peer_spec(name, peer), python, texts, queries, size)
    found: dict[str, float] = {}
    for name, (documents, asked) in sides.items():
        scores = asked @ documents.T
        run = [
            ir_measures.ScoredDoc(query, str(ids[int(j)]), float(row[j]))
            for query, row in zip(judged.queries, scores, strict=True)
            for j in np.argsort(-row, kind="stable")[:10]
        ]
        found[name] = float(ir_measures.calc_aggregate([NDCG], judged.qrels, run)[NDCG])
    print_table(f"nDCG@10, splade-tiny, {len(texts)} documents of {folder.name}", found)
    return {
        "topk_overlap_fp32": round(overlap(vectors["torch"][0], vectors["fp32"][0]), 5),
        "topk_overlap_int8": round(overlap(vectors["torch"][0], vectors["int8"][0]), 4),
        "topk_overlap_int8_cut": round(overlap(vectors["torch"][0], vectors["int8 cut"][0]), 4),
        "ndcg_fp32": round(found["fp32"], 4),
        "ndcg_drop_fp32": round(found["torch"] - found["fp32"], 4),
        "ndcg_drop_int8": round(found["torch"] - found["int8"], 4),
        "ndcg_drop_int8_cut": round(found["torch"] - found["int8 cut"], 4),
        **{
            f"ndcg_drop_{name.replace(' ', '_').replace('-', '')}": round(found["torch"] - value, 4)
            for name, value in found.items()
            if name.startswith("peer")
        },
    }


def peer_vectors(
    spec: Mapping[str, Any], python: str, texts: Sequence[str], queries: Sequence[str], size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return documents [n, V] and queries [m, V], encoded by a form of the peer in its environment."""
    with tempfile.TemporaryDirectory() as scratch:
        file, output = Path(scratch, "spec.json"), Path(scratch, "vectors.npz")
        limits = {"threads": 1, "max_length": MAX_LENGTH["splade-tiny"], "batch": 8}
        file.write_text(json.dumps({**spec, **limits, "documents": list(texts), "queries": list(queries)}))
        command = [python, "-m", "benchmarks.encode.peer_vectors", str(file), str(output)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
        made = np.load(output)
        sides = []
        for side, count in (("documents", len(texts)), ("queries", len(queries))):
            rows = np.zeros((count, size), np.float32)
            rows[made[f"{side}_rows"], made[f"{side}_terms"]] = made[f"{side}_weights"]
            sides.append(rows)
    return sides[0], sides[1]


def overlaps(model: Path, bundles: Mapping[tuple[str, str], Path], texts: Sequence[str]) -> dict[str, float]:
    """Overlap of the vectors of short texts with torch's."""
    encoder = SparseEncoder.load(model)
    expected = encoder.encode(texts, batch_size=8)
    return {
        f"topk_overlap_{form.replace(' ', '_')}_debian_packages": round(
            overlap(expected, BundleEncoder(bundles[model.name, form]).encode(texts, kind="document")), 5
        )
        for form in FORMS
    }


def overlap(ours: SparseBatch, theirs: SparseBatch) -> float:
    """Mean share of terms that two vectors of a text have in common."""
    shares = []
    for i in range(len(ours)):
        mine, yours = ours.row(i)[0], theirs.row(i)[0]
        longer = max(len(mine), len(yours))
        shares.append(len(np.intersect1d(mine, yours)) / longer if longer else 1.0)
    return float(np.mean(shares))
