"""Bundles of decoders: bidirectional, echo and causal graphs rank like torch."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
import torch

from lsr_prod.config import ExportSettings
from lsr_prod.errors import ConfigError
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder
from lsr_prod.model.export import export_bundle
from lsr_prod.model.export.graph import export_graph, quantize_graph
from tests.model.tiny import CAUSAL, VOCABULARY, tiny_checkpoint

TOP_K = 30
pytestmark = pytest.mark.usefixtures("traced_once")
QUICK = [("gpt_neox", "echo"), ("llama", "causal"), ("qwen3", "bidirectional")]  # each kind of attention
KINDS = [(name, attention) for name in CAUSAL for attention in ("bidirectional", "echo")] + [("llama", "causal")]
PARAMETERS = [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.slow) for kind in KINDS]


@pytest.fixture(scope="module", params=PARAMETERS, ids="-".join)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SparseEncoder, onnx.ModelProto]:
    name, attention = request.param
    folder = tiny_checkpoint(tmp_path_factory.mktemp(name), name)
    encoder = _encoder(folder, attention)
    return encoder, export_graph(encoder, top_k=TOP_K)


def _encoder(folder: Path, attention: str) -> SparseEncoder:
    return SparseEncoder.load(
        folder, attention=attention, query_max_length=20, document_max_length=36, query_prompt="w9 "
    )


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def _batch(rows: int, length: int, padding: int) -> dict[str, npt.NDArray[np.int64]]:
    ids = np.random.default_rng(rows * 100 + length).integers(8, 97, (rows, length))
    mask = np.ones_like(ids)
    for row in range(1, rows):
        mask[row, max(1, length - padding * row) :] = 0
    return {"input_ids": np.where(mask == 1, ids, 0), "attention_mask": mask}


def _same_terms(expected: npt.NDArray[np.float32], terms: npt.NDArray[np.int64]) -> bool:
    """Return whether ``terms`` are the k heaviest of a row, up to ties with the last one."""
    order = np.argsort(-expected, kind="stable")[: len(terms)]
    last = expected[order[-1]]
    swapped = np.setxor1d(order, terms)
    return bool(np.all(np.abs(expected[swapped] - last) <= 1e-4))


@pytest.mark.long
def test_graph_returns_terms_of_torch_for_every_batch_and_length(
    exported: tuple[SparseEncoder, onnx.ModelProto],
) -> None:
    encoder, model = exported
    session = _session(model)
    for rows, length, padding in [(1, 1, 0), (1, 2, 0), (1, 13, 0), (2, 7, 0), (2, 8, 3), (3, 36, 12), (7, 30, 4)]:
        feed = _batch(rows, length, padding)
        terms, weights = session.run(["terms", "weights"], feed)
        with torch.inference_mode():
            expected = encoder(*(torch.from_numpy(array) for array in feed.values())).numpy()
        assert terms.shape == weights.shape == (rows, TOP_K)
        np.testing.assert_allclose(np.take_along_axis(expected, terms, 1), weights, atol=1e-4)
        assert all(_same_terms(row, found) for row, found in zip(expected, terms, strict=True))


@pytest.mark.long
def test_padding_keeps_vectors(exported: tuple[SparseEncoder, onnx.ModelProto]) -> None:
    session = _session(exported[1])
    feed = _batch(4, 20, 5)
    _, together = session.run(None, feed)
    for row, length in enumerate(feed["attention_mask"].sum(axis=1)):
        _, alone = session.run(None, {name: array[row : row + 1, :length] for name, array in feed.items()})
        np.testing.assert_allclose(alone[0], together[row], atol=1e-4)


@pytest.mark.long
def test_8_bit_weights_stay_close(exported: tuple[SparseEncoder, onnx.ModelProto], tmp_path: Path) -> None:
    _, model = exported
    feed = _batch(3, 12, 2)
    _, exact = _session(model).run(["terms", "weights"], feed)
    quantized = quantize_graph(model, tmp_path)
    _, weights = _session(quantized).run(["terms", "weights"], feed)
    assert np.abs(weights - exact).max() < 0.25
    integer = [node for node in quantized.graph.node if node.op_type == "MatMulInteger"]
    assert len(integer) >= 2 * 4 + 1, "the layers' products and the head"
    rotary = {node.input[0] for node in quantized.graph.node if node.op_type in ("Cos", "Sin")}
    makers = {name: node for node in quantized.graph.node for name in node.output}
    assert all(makers[name].op_type != "MatMulInteger" for name in rotary), "positions stay exact"


def test_fp16_is_refused_before_any_work(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "checkpoint", "qwen2")
    settings = ExportSettings(model=str(folder), output=str(tmp_path / "bundle"), precision="fp16")
    with pytest.raises(ConfigError, match=r"export\.precision: fp16 overflows.*; take fp32 or int8"):
        export_bundle(settings)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("architecture", "attention", "precision"),
    [("gpt_neox", "echo", "fp32"), pytest.param("qwen3", "bidirectional", "int8", marks=pytest.mark.slow)],
)
def test_bundle_of_decoder_ranks_like_torch(tmp_path: Path, architecture: str, attention: str, precision: str) -> None:
    """The tokenizer has no BOS and no padding; the bundle starts every text with a BOS."""
    folder = tiny_checkpoint(tmp_path / "checkpoint", architecture)
    model = tmp_path / "model"
    _encoder(folder, attention).save(model)
    rng = np.random.default_rng(0)
    texts = [" ".join(VOCABULARY[i] for i in rng.integers(8, 97, 6)) for _ in range(40)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    settings = ExportSettings(
        model=str(model),
        output=str(tmp_path / "bundle"),
        top_k=TOP_K,
        precision=precision,
        parity_texts=str(tmp_path / "texts.jsonl"),
        int8_min_overlap=0.8,
    )
    summary = export_bundle(settings)
    assert summary["parity_overlap"] > (0.999 if precision == "fp32" else 0.8)
    bundle, encoder = BundleEncoder(tmp_path / "bundle"), SparseEncoder.load(model)
    assert bundle.token_ids(["w1", ""], kind="query") == [[2, 14, 6], []]
    texts = ["w1 W2 w3", "w5 " * 50, "", "W8"]
    ours, theirs = encoder.encode(texts).top(TOP_K), bundle.encode(texts, kind="document")
    assert [len(theirs.row(i)[0]) for i in range(4)] == [len(ours.row(i)[0]) for i in range(4)]
    np.testing.assert_allclose(theirs.weights, ours.weights, atol=1e-4 if precision == "fp32" else 0.2)
