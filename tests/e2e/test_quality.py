"""The whole way keeps the ranking of the torch model: checkpoint -> bundle -> table -> index -> hits."""

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
from lsr_prod.export import export_bundle
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.indexing import build_index

COLLECTIONS = {"scifact": 0.58, "msmarco_5k": 0.716}
# MS MARCO's grades are 0..3 and the reference figures have TREC's gains of 2^grade - 1; SciFact's are 0 and 1.
MEASURE = "nDCG(dcg='exp-log2')@10"
NDCG = ir_measures.parse_measure(MEASURE)
TOLERANCE = {"fp32": 0.005, "int8": 0.01}


@pytest.fixture(scope="module")
def model(splade_tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quality") / "model"
    SparseEncoder.load(splade_tiny, document_max_length=128, query_max_length=64).save(folder)
    return folder


@pytest.fixture(scope="module", params=sorted(COLLECTIONS))
def collection(request: pytest.FixtureRequest, shared_data: Path) -> Path:
    return shared_data / str(request.param)


@pytest.fixture(scope="module")
def torch_ndcg(collection: Path, model: Path) -> float:
    """Brute force with the torch model: every query against every document, all active terms, no quantisation."""
    encoder = SparseEncoder.load(model)
    judged = read_judged(collection / "queries.jsonl", collection / "qrels" / "test.tsv")
    with (collection / "corpus.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    texts = [" ".join(part for part in (row.get("title"), row["text"]) if part) for row in rows]
    documents = _dense(encoder.encode(texts, kind="document"), encoder.card.vocabulary_size)
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


@pytest.fixture(scope="module", params=["fp32", "int8"])
def systems(
    request: pytest.FixtureRequest,
    collection: Path,
    model: Path,
    ray_local: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, dict[str, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp(f"{collection.name}-{request.param}")
    deployment = _deployment(folder, collection, model, request.param)
    assert deployment.export is not None
    export_bundle(deployment.export)
    encoded = encode_corpus(deployment)
    assert encoded["quarantined"] == 0
    build_index(deployment)
    return request.param, {system["name"]: system for system in evaluate_index(deployment)["systems"]}


def test_the_index_ranks_as_torch_does(
    systems: tuple[str, dict[str, dict[str, Any]]], torch_ndcg: float, collection: Path
) -> None:
    precision, by_name = systems
    found = by_name["threshold 0"]["measures"][MEASURE]
    bm25 = by_name["bm25"]["measures"][MEASURE]
    print(f"{collection.name} {precision}: torch {torch_ndcg:.4f} index {found:.4f} bm25 {bm25:.4f}")
    assert torch_ndcg == pytest.approx(COLLECTIONS[collection.name], abs=0.005)
    assert found == pytest.approx(torch_ndcg, abs=TOLERANCE[precision])
    assert by_name["threshold 0.4"]["matched"] < by_name["threshold 0"]["matched"]
