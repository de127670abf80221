import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from lsr_prod.model.export import head
from lsr_prod.model.export.head import find_head, fold_weights, rewrite_head

D, V, K = 4, 23, 5


def _graph(*, tied: bool) -> onnx.ModelProto:
    """Graph from states [B, L, D] to the K largest maxima of the head, as the exporter writes it."""
    rng = np.random.default_rng(3)
    weight, bias = rng.normal(size=(V, D)).astype(np.float32), rng.normal(size=V).astype(np.float32)
    constants = {"weight": weight if tied else weight.T, "bias": bias, "axis": np.array([1]), "k": np.array([K])}
    nodes = [
        *([helper.make_node("Transpose", ["weight"], ["turned"], perm=[1, 0])] if tied else []),
        helper.make_node("MatMul", ["states", "turned" if tied else "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["logits"]),
        helper.make_node("ReduceMax", ["logits", "axis"], ["maxima"], keepdims=0),
        helper.make_node("TopK", ["maxima", "k"], ["weights", "terms"], axis=1),
    ]
    values = (("states", TensorProto.FLOAT, ["b", "l", D]), ("terms", TensorProto.INT64, ["b", K]))
    states, terms = (helper.make_tensor_value_info(*value) for value in values)
    weights = helper.make_tensor_value_info("weights", TensorProto.FLOAT, ["b", K])
    initial = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "head", [states], [terms, weights], initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _run(model: onnx.ModelProto, length: int = 6) -> list[npt.NDArray[np.float32]]:
    onnx.checker.check_model(model, full_check=True)
    states = np.random.default_rng(4).normal(size=(3, length, D)).astype(np.float32)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["terms", "weights"], {"states": states})


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("block", [1, 7, V, 100])
def test_blocks_keep_result(tied: bool, block: int) -> None:
    model = _graph(tied=tied)
    expected = _run(model)
    rewrite_head(model, block=block)
    terms, weights = _run(model)
    np.testing.assert_array_equal(terms, expected[0])
    np.testing.assert_allclose(weights, expected[1], atol=1e-6)


@pytest.mark.parametrize("fold", [True, False])
def test_kept_columns_return_their_term_ids(fold: bool) -> None:
    model = _graph(tied=True)
    terms, weights = _run(model)
    columns = np.unique(terms)  # every term that a row returns
    assert len(columns) < V
    rewrite_head(model, columns=columns, block=4)
    if fold:
        fold_weights(model)
        assert not [node for node in model.graph.node if node.op_type in ("Transpose", "Split")]
        assert "weight" not in {weight.name for weight in model.graph.initializer}
    found = _run(model)
    np.testing.assert_array_equal(found[0], terms)
    np.testing.assert_allclose(found[1], weights, atol=1e-6)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 20])
@pytest.mark.parametrize("columns", [None, np.array([1, 4, 5, 9, 11, 20, 21])])
@pytest.mark.parametrize("block", [8, 100])
def test_form_for_gpus_keeps_result(
    length: int, columns: npt.NDArray[np.int64] | None, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """23 terms are no multiple of 8, and neither are 7 columns and most lengths."""
    monkeypatch.setattr(head, "GPU_BLOCK", block)
    plain, model = _graph(tied=True), _graph(tied=True)
    rewrite_head(plain, columns=columns)
    rewrite_head(model, columns=columns, gpu=True)
    terms, weights = _run(plain, length)
    found = _run(model, length)
    np.testing.assert_array_equal(found[0], terms)
    np.testing.assert_allclose(found[1], weights, atol=1e-6)


def test_unexpected_graph_is_refused() -> None:
    model = _graph(tied=False)
    model.graph.node[1].op_type = "Mul"
    with pytest.raises(ValueError, match="no ReduceMax over a vocabulary head"):
        find_head(model)
