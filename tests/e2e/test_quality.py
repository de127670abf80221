"""The index ranks as the torch model does: checkpoint -> bundle -> table -> index -> hits."""

import json
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
import yaml

from lsr_prod import SparseEncoder
from lsr_prod.config import Deployment
from lsr_prod.encoding import encode_corpus
from lsr_prod.evaluation import evaluate_index
from lsr_prod.evaluation.collection import read_judged
from lsr_prod.evaluation.measures import parse_measures
from lsr_prod.indexing import build_index
from lsr_prod.model.export import export_bundle
from lsr_prod.storage.formats.sparse import SparseBatch

COLLECTIONS = {"scifact": 0.58, "msmarco_5k": 0.716}
# Grades are 0..3 for MS MARCO, whose reference figures use the gains 2^grade - 1 of TREC, and 0 or 1 for SciFact.
MEASURE = "nDCG(dcg='exp-log2')@10"
NDCG = parse_measures("measure", [MEASURE])[MEASURE]


@pytest.fixture(scope="module")
def model(splade_tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quality") / "model"
    SparseEncoder.load(splade_tiny, document_max_length=128, query_max_length=64).save(folder)
    return folder


def _torch_ndcg(collection: Path, model: Path) -> float:
    """Brute force with the torch model: every query against every document, all active terms, no quantization."""
    encoder = SparseEncoder.load(model)
    judged = read_judged(collection / "queries.jsonl", collection / "qrels" / "test.tsv")
    with (collection / "corpus.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    texts = [" ".join(part for part in (row.get("title"), row["text"]) if part) for row in rows]
    documents = _dense(encoder.encode(texts, kind="document", batch_size=8), encoder.card.vocabulary_size)
    queries = _dense(encoder.encode(list(judged.queries.values()), kind="query"), encoder.card.vocabulary_size)
    scores = queries @ documents.T
    run = [
        ir_measures.ScoredDoc(query_id, str(rows[int(i)]["_id"]), float(score[i]))
        for query_id, score in zip(judged.queries, scores, strict=True)
        for i in np.argsort(-score)[:100]
    ]
    return float(ir_measures.calc_aggregate([NDCG], judged.qrels, run)[NDCG])


def _dense(batch: SparseBatch, size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    matrix = np.zeros((len(batch), size), np.float32)
    for i in range(len(batch)):
        terms, weights = batch.row(i)
        matrix[i, terms] = weights
    return matrix


def _deployment(folder: Path, collection: Path, model: Path, precision: str) -> Deployment:
    text = f"""
source: {{paths: ["{collection}"]}}
export: {{model: "{model}", output: "{folder}/bundle", precision: {precision}}}
encode: {{bundle: "{folder}/bundle", table: "{folder}/table"}}
index: {{table: "{folder}/table", bundle: "{folder}/bundle", output: "{folder}/index", shards: 2}}
evaluate:
  index: "{folder}/index"
  queries: "{collection}/queries.jsonl"
  qrels: "{collection}/qrels/test.tsv"
  measures: ["{MEASURE}"]
  thresholds: [0.0, 0.4]
  k: 100
"""
    return Deployment.model_validate(yaml.safe_load(text))


def _index_measures(folder: Path, collection: Path, model: Path, precision: str) -> dict[str, dict[str, Any]]:
    deployment = _deployment(folder, collection, model, precision)
    assert deployment.export is not None
    export_bundle(deployment.export)
    assert encode_corpus(deployment).quarantined == 0
    build_index(deployment)
    return {system["name"]: system for system in evaluate_index(deployment).result()["systems"]}


def _part(collection: Path, folder: Path, documents: int) -> Path:
    """Write the first documents of a collection and their relevance judgments."""
    (folder / "qrels").mkdir(parents=True)
    lines = (collection / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:documents]
    ids = {str(json.loads(line)["_id"]) for line in lines}
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "queries.jsonl").write_bytes((collection / "queries.jsonl").read_bytes())
    head, *judgments = (collection / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    kept = [line for line in judgments if line.split("\t")[1] in ids]
    (folder / "qrels" / "test.tsv").write_text("\n".join([head, *kept]) + "\n", encoding="utf-8")
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "precisions", "documents"),
    [
        ("msmarco_5k", ("fp32", "int8"), 500),
        pytest.param("msmarco_5k", ("fp32", "int8"), None, marks=pytest.mark.slow),
        pytest.param("scifact", ("fp32", "int8"), None, marks=pytest.mark.slow),
    ],
)
def test_index_ranks_as_torch_model(
    name: str,
    precisions: tuple[str, ...],
    documents: int | None,
    model: Path,
    shared_data: Path,
    ray_local: None,
    tmp_path: Path,
) -> None:
    collection = shared_data / name if documents is None else _part(shared_data / name, tmp_path / name, documents)
    torch = _torch_ndcg(collection, model)
    if documents is None:
        assert torch == pytest.approx(COLLECTIONS[name], abs=0.005)
    found: dict[str, float] = {}
    for precision in precisions:
        by_name = _index_measures(tmp_path / precision, collection, model, precision)
        found[precision] = by_name["threshold 0"]["measures"][MEASURE]
        bm25 = by_name["bm25"]["measures"][MEASURE]
        print(f"{name} {precision}: torch {torch:.4f} index {found[precision]:.4f} bm25 {bm25:.4f}")
        assert by_name["threshold 0.4"]["matched"] < by_name["threshold 0"]["matched"]
    assert found["fp32"] == pytest.approx(torch, abs=0.005)
    assert found.get("int8", found["fp32"]) == pytest.approx(found["fp32"], abs=0.01)
