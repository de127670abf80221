"""Quality and speed of quantized models that encode both documents and queries (papers/csplade, 5.3).

    python -m benchmarks.encode.quantization SHARED_DATA [--model FOLDER] [--quick]

SciFact; every format encodes its own documents and its own queries, in one process and on one thread: fp32 by ONNX
Runtime, bf16 by torch, 8-bit weights with activations quantized at run time (int8 dynamic) or with calibrated
ranges (int8 static, calibrated on documents and queries of the training split that are not evaluated), and 4-bit
weights in blocks (MatMulNBits). Prints nDCG@10, RR@10, terms, FLOPS, bytes and queries per second at batch 1, and
``RESULT {json}``.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import onnx
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from benchmarks.encode.models import make_tiny
from lsr_prod import SparseEncoder
from lsr_prod.config import ExportSettings
from lsr_prod.evaluation.collection import read_judged
from lsr_prod.evaluation.vector_evaluation import Encoded, evaluate
from lsr_prod.inference import BundleEncoder
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.model.export import export_bundle
from lsr_prod.model.export.head import fold_weights
from lsr_prod.storage.formats.bundle_format import GRAPH_FILE, Kind
from lsr_prod.storage.formats.sparse import SparseBatch

MEASURES = ["nDCG@10", "RR@10"]
BLOCK = 32  # weights that share a scale in 4 bits
Encode = Callable[[Sequence[str], Kind], SparseBatch]


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents, queries and judgments by id, and the calibration texts of the static format.

    Attributes:
        documents: id -> text.
        queries: id -> text.
        qrels: judgments of these queries.
        calibration: other texts: documents, and queries of the training split.
    """

    documents: dict[str, str]
    queries: dict[str, str]
    qrels: list[ir_measures.Qrel]
    calibration: list[tuple[str, Kind]]


def main(argv: Sequence[str]) -> int:
    """Measure every format and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", type=Path, help="model directory; unset: splade-tiny")
    parser.add_argument("--quick", action="store_true", help="300 documents and 20 queries: smoke test")
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    values: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = asked.model or make_tiny(folder / "model")
        collection = read_collection(asked.data / "scifact", quick=asked.quick)
        for name, (encode, size) in encoders(model, folder, collection).items():
            found = measure(encode, collection)
            print_table(name, {**found, "weights_bytes": size})
            values |= {f"{name}_{key}": value for key, value in {**found, "weights_bytes": size}.items()}
    print_result(values)
    return 0


def read_collection(folder: Path, *, quick: bool) -> Collection:
    """SciFact, or a small part of it: documents with judgments come first."""
    judged = read_judged(folder / "queries.jsonl", folder / "qrels" / "test.tsv")
    training = read_judged(folder / "queries.jsonl", folder / "qrels" / "train.tsv")
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    texts = {str(row["_id"]): " ".join(part for part in (row.get("title"), row["text"]) if part) for row in rows}
    queries = dict(list(judged.queries.items())[: 20 if quick else None])
    relevant = {qrel.doc_id for qrel in judged.qrels if qrel.query_id in queries}
    order = sorted(texts, key=lambda id_: id_ not in relevant)
    documents = {id_: texts[id_] for id_ in order[: 300 if quick else None]}
    rest = [texts[qrel.doc_id] for qrel in training.qrels if qrel.doc_id not in relevant][: 16 if quick else 100]
    calibration: list[tuple[str, Kind]] = [(text, "document") for text in dict.fromkeys(rest)]
    others = [text for id_, text in training.queries.items() if id_ not in judged.queries]
    calibration += [(text, "query") for text in others[: len(calibration)]]
    return Collection(documents, queries, judged.qrels, calibration)


def encoders(model: Path, folder: Path, collection: Collection) -> dict[str, tuple[Encode, int]]:
    """Return format name -> (encode function, bytes of the weights)."""
    made: dict[str, tuple[Encode, int]] = {}
    plain = folder / "fp32"
    export_bundle(ExportSettings(model=str(model), output=str(plain)))
    export_bundle(
        ExportSettings(model=str(model), output=str(folder / "int8"), precision="int8", int8_min_overlap=0.0)
    )  # the loss is printed, so the export must not fail on it
    graph = onnx.load(plain / GRAPH_FILE)
    fold_weights(graph)
    static = _with_graph(plain, folder / "static", static_graph(graph, BundleEncoder(plain), collection.calibration))
    four = _with_graph(plain, folder / "int4", four_bit_graph(graph))
    bundles = {"fp32": plain, "int8_dynamic": folder / "int8", "int8_static": static, "int4": four}
    for name, bundle in bundles.items():
        made[name] = _bundle(bundle), (bundle / GRAPH_FILE).stat().st_size
    half = SparseEncoder.load(model)
    half.model.bfloat16()
    size = sum(parameter.numel() * 2 for parameter in half.model.parameters())
    made["bf16_torch"] = _torch(half, BundleEncoder(plain)), size
    return made


def static_graph(graph: onnx.ModelProto, encoder: BundleEncoder, texts: Sequence[tuple[str, Kind]]) -> onnx.ModelProto:
    """Return a graph with 8-bit weights and with activation ranges calibrated on the texts, encoded as in a search."""
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch) / "source.onnx", Path(scratch) / "static.onnx"
        onnx.save_model(graph, source)
        quantize_static(
            source,
            target,
            _Texts(encoder, texts),
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True},
        )
        return onnx.load(target)


class _Texts(CalibrationDataReader):  # type: ignore[misc]
    """Reader that yields one text at a time, because padding of a batch would distort the calibrated ranges."""

    def __init__(self, encoder: BundleEncoder, texts: Sequence[tuple[str, Kind]]) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = iter([_feed(encoder, text, kind) for text, kind in texts])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the inputs of the next text, or None at the end."""
        return next(self._feeds, None)


def _feed(encoder: BundleEncoder, text: str, kind: Kind) -> dict[str, np.ndarray]:
    ids = np.array(encoder.token_ids([text], kind=kind), np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def four_bit_graph(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph with 4-bit weights, one scale and offset per block; activations stay fp32."""
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    quantizer = MatMulNBitsQuantizer(copy, block_size=BLOCK, is_symmetric=False)
    quantizer.process()
    quantized: onnx.ModelProto = quantizer.model.model
    assert any(node.op_type == "MatMulNBits" for node in quantized.graph.node)
    return quantized


def _with_graph(bundle: Path, folder: Path, graph: onnx.ModelProto) -> Path:
    """Copy a bundle and replace its graph; the manifest is not updated, so use the copy for this measurement only."""
    shutil.copytree(bundle, folder)
    onnx.save_model(graph, folder / GRAPH_FILE)
    return folder


def _bundle(folder: Path) -> Encode:
    encoder = BundleEncoder(folder, threads=1)
    return lambda texts, kind: encoder.encode(texts, kind=kind)


def _torch(encoder: SparseEncoder, tokenizer: BundleEncoder) -> Encode:
    """Return a function that encodes one text at a time and reuses the tokenizer, as a bundle does."""

    @torch.inference_mode()
    def encode(texts: Sequence[str], kind: Kind) -> SparseBatch:
        vectors = []
        for row in tokenizer.token_ids(texts, kind=kind):
            ids = torch.tensor([row])
            weights, terms = encoder(ids, torch.ones_like(ids)).topk(tokenizer.bundle.top_k)
            vectors.append(SparseBatch.from_topk(terms.numpy(), weights.float().numpy()))
        return SparseBatch.concatenate(vectors)

    return encode


def measure(encode: Encode, collection: Collection) -> dict[str, float]:
    """Encode documents and queries with one format and return quality and speed."""
    queries, start = list(collection.queries.values()), time.perf_counter()
    documents = encode(list(collection.documents.values()), "document")
    seconds = time.perf_counter() - start
    for text in queries[:5]:
        encode([text], "query")
    start = time.perf_counter()
    vectors = SparseBatch.concatenate([encode([text], "query") for text in queries])
    rate = len(queries) / (time.perf_counter() - start)
    (report,) = evaluate(
        Encoded(list(collection.documents), documents),
        Encoded(list(collection.queries), vectors),
        collection.qrels,
        levels=[(0, 0)],
        thresholds=[0.0],
        measures=MEASURES,
    )
    return {
        **{name: round(report.measures[name], 4) for name in MEASURES},
        "queries_per_s": round(rate, 1),
        "documents_per_s": round(len(documents) / seconds, 1),
        "l0_query": round(report.l0_query, 1),
        "l0_document": round(report.l0_document, 1),
        "flops": round(report.flops, 3),
    }


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
