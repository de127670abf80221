from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import helper

from lsr_prod.model import SparseEncoder
from lsr_prod.model.export.graph import export_graph, halve_graph, quantize_graph, save_graph
from lsr_prod.model.export.head import fuse_norms
from tests.model.tiny import ARCHITECTURES, tiny_checkpoint

TOP_K = 40
pytestmark = pytest.mark.usefixtures("traced_once")


def _architectures(*long: str) -> list[Any]:
    """Return a parameter per architecture: "bert" is quick, those that are not named are slow."""
    marks = {"bert": (), **dict.fromkeys(long, (pytest.mark.long,))}
    return [pytest.param(name, marks=marks.get(name, (pytest.mark.slow,))) for name in ARCHITECTURES]


@pytest.fixture(scope="module", params=_architectures("albert", "modernbert"))
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SparseEncoder, onnx.ModelProto]:
    folder = tiny_checkpoint(tmp_path_factory.mktemp(request.param), request.param)
    encoder = SparseEncoder.load(folder)
    return encoder, export_graph(encoder, top_k=TOP_K)


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def _head(encoder: SparseEncoder) -> torch.Tensor:
    return encoder.model.get_output_embeddings().weight


def _batch(rows: int, length: int, padding: int, pad: int) -> dict[str, npt.NDArray[np.int64]]:
    ids = np.random.default_rng(rows * 100 + length).integers(8, 97, (rows, length))
    mask = np.ones_like(ids)
    for row in range(1, rows):
        mask[row, max(1, length - padding * row) :] = 0
    return {"input_ids": np.where(mask == 1, ids, pad), "attention_mask": mask}


def test_graph_equals_model_for_every_batch_and_length(exported: tuple[SparseEncoder, onnx.ModelProto]) -> None:
    encoder, model = exported
    session = _session(model)
    for rows, length, padding in [(1, 1, 0), (1, 13, 0), (2, 7, 0), (2, 8, 3), (3, 64, 20), (5, 9, 1), (7, 30, 4)]:
        feed = _batch(rows, length, padding, encoder.model.config.pad_token_id)
        terms, weights = session.run(["terms", "weights"], feed)
        with torch.inference_mode():
            expected = encoder(*(torch.from_numpy(array) for array in feed.values())).numpy()
        assert terms.shape == weights.shape == (rows, TOP_K)
        assert (terms.dtype, weights.dtype) == (np.int64, np.float32)
        np.testing.assert_allclose(np.take_along_axis(expected, terms, 1), weights, atol=1e-4)
        np.testing.assert_allclose(-np.sort(-expected, axis=1)[:, :TOP_K], weights, atol=1e-4)


@pytest.mark.parametrize("exported", _architectures("modernbert"), indirect=True)
def test_form_for_gpus_has_the_same_vectors(exported: tuple[SparseEncoder, onnx.ModelProto]) -> None:
    encoder, model = exported
    for_gpus = export_graph(encoder, top_k=TOP_K, gpu=True)
    fuse_norms(for_gpus)
    fused = [node.op_type for node in for_gpus.graph.node].count("SkipLayerNormalization")
    assert fused == (0 if encoder.model.config.model_type == "modernbert" else 4)  # whose norms are before the layers
    plain, other = _session(model), _session(for_gpus)
    for rows, length, padding in [(1, 1, 0), (2, 7, 0), (2, 8, 3), (5, 9, 1)]:
        feed = _batch(rows, length, padding, encoder.model.config.pad_token_id)
        (terms, weights), (same_terms, same) = (one.run(["terms", "weights"], feed) for one in (plain, other))
        np.testing.assert_array_equal(terms, same_terms)
        np.testing.assert_allclose(weights, same, atol=1e-5)


def test_padding_keeps_vectors(exported: tuple[SparseEncoder, onnx.ModelProto]) -> None:
    encoder, model = exported
    session = _session(model)
    feed = _batch(4, 20, 5, encoder.model.config.pad_token_id)
    _, together = session.run(None, feed)
    for row, length in enumerate(feed["attention_mask"].sum(axis=1)):
        _, alone = session.run(None, {name: array[row : row + 1, :length] for name, array in feed.items()})
        np.testing.assert_allclose(alone[0], together[row], atol=1e-4)


def test_graph_names_its_axes_and_contains_no_paths(exported: tuple[SparseEncoder, onnx.ModelProto]) -> None:
    _, model = exported
    assert [i.name for i in model.graph.input] == ["input_ids", "attention_mask"]
    assert [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim] == ["batch", "length"]
    assert b"site-packages" not in model.SerializeToString()
    assert b"stack_trace" not in model.SerializeToString()


def test_vocabulary_head_has_8_bit_weights(exported: tuple[SparseEncoder, onnx.ModelProto], tmp_path: Path) -> None:
    encoder, model = exported
    quantized = quantize_graph(model, tmp_path)
    assert list(tmp_path.iterdir()) == []
    products = [node for node in quantized.graph.node if node.op_type == "MatMulInteger"]
    assert {node.input[1] for node in products if node.input[1].startswith("head_block")} == {"head_block_0_quantized"}
    stored = {weight.name: weight for weight in quantized.graph.initializer}
    assert tuple(stored["head_block_0_quantized"].dims) == (_head(encoder).shape[1], 97)
    assert {stored[node.input[1]].data_type for node in products} == {onnx.TensorProto.INT8}
    feed = _batch(3, 12, 2, encoder.model.config.pad_token_id)
    _, weights = _session(quantized).run(None, feed)
    _, exact = _session(model).run(None, feed)
    assert np.abs(weights - exact).max() < 0.25


def test_large_graph_stores_weights_in_second_file(tmp_path: Path) -> None:
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert"))
    model = export_graph(encoder, top_k=TOP_K)
    feed = _batch(2, 6, 2, 7)
    expected = _session(model).run(None, feed)
    save_graph(model, tmp_path / "model.onnx", external_above=10_000)
    assert (tmp_path / "model.onnx.data").stat().st_size > 10_000
    session = ort.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for ours, theirs in zip(session.run(None, feed), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("halve", [False, True])
def test_graph_above_2_gib_is_written(tmp_path: Path, halve: bool) -> None:
    size = 16_640
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size]) for name in ("x", "y")]
    nodes = [helper.make_node("MatMul", [a, f"w{a}"], [b], name=a) for a, b in (("x", "t"), ("t", "y"))]
    model = helper.make_model(helper.make_graph(nodes, "large", values[:1], values[1:]))
    for name in ("wx", "wt"):
        weight = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[size, size])
        weight.raw_data = bytes(4 * size * size)
        model.graph.initializer.append(weight)
    save_graph(halve_graph(model) if halve else model, tmp_path / "model.onnx")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > (2 if halve else 4) * 2 * size * size
