import json
from pathlib import Path

import ir_measures
import numpy as np
import numpy.typing as npt
import pytest

from lsr_prod.config import ExportSettings
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder
from lsr_prod.model.export import export_bundle
from lsr_prod.storage.formats.sparse import SparseBatch

# TREC-DL grades are 0..3; with gains of 2^grade - 1 the checkpoint reaches 0.716 on the whole collection.
MEASURE = ir_measures.nDCG(dcg="exp-log2") @ 10


@pytest.mark.slow
def test_export_keeps_quality(tiny_model: Path, tiny_bundle: Path, shared_data: Path, tmp_path: Path) -> None:
    """Brute force over a sample of MS MARCO passages with vectors of torch, the fp32 graph and the int8 graph."""
    export_bundle(ExportSettings(model=str(tiny_model), output=str(tmp_path / "int8"), precision="int8"))
    folder = shared_data / "msmarco_5k"
    # Every 16th document: most are relevant to a query, so every query keeps some.
    documents = _records(folder / "corpus.jsonl")[::16]
    kept = {document["_id"] for document in documents}
    rows = [line.split("\t") for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    qrels = [ir_measures.Qrel(query, document, int(grade)) for query, document, grade in rows if document in kept]
    judged = {qrel.query_id for qrel in qrels}
    queries = [query for query in _records(folder / "queries.jsonl") if query["_id"] in judged]
    texts = [f"{document.get('title', '')} {document['text']}".strip() for document in documents]
    asked = [query["text"] for query in queries]

    def quality(documents_: SparseBatch, queries_: SparseBatch) -> float:
        scores = _dense(queries_) @ _dense(documents_).T  # [queries, documents]
        run = [
            ir_measures.ScoredDoc(query["_id"], documents[j]["_id"], float(scores[i, j]))
            for i, query in enumerate(queries)
            for j in np.argsort(-scores[i], kind="stable")[:10]
        ]
        return float(ir_measures.calc_aggregate([MEASURE], qrels, run)[MEASURE])

    encoder = SparseEncoder.load(tiny_model)
    torch = quality(encoder.encode(texts, batch_size=8), encoder.encode(asked, "query"))
    fp32, int8 = (
        quality(bundle.encode(texts, kind="document"), bundle.encode(asked, kind="query"))
        for bundle in (BundleEncoder(tiny_bundle, threads=2), BundleEncoder(tmp_path / "int8", threads=2))
    )
    assert torch > 0.6, "the ranking of a working encoder"
    assert abs(fp32 - torch) <= 0.005
    assert abs(int8 - fp32) <= 0.01


def _records(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").strip().split("\n")]


def _dense(batch: SparseBatch) -> npt.NDArray[np.float32]:
    rows = np.zeros((len(batch), 30_522), dtype=np.float32)
    rows[np.repeat(np.arange(len(batch)), np.diff(batch.offsets)), batch.terms] = batch.weights
    return rows
