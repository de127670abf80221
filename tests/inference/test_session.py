from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lsr_prod.errors import ConfigError
from lsr_prod.inference.session import GraphSession, choose_provider

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"


@pytest.fixture
def doubling(tmp_path: Path) -> Path:
    """Return a graph that adds its input to itself."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "doubling", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save_model(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize(
    ("available", "taken"), [((TENSORRT, CUDA, CPU), CUDA), ((TENSORRT, CPU), TENSORRT), ((CPU,), CPU)]
)
def test_auto_selects_first_available_provider(available: tuple[str, ...], taken: str) -> None:
    assert choose_provider("auto", available) == taken


def test_requested_provider_is_used_or_rejected() -> None:
    assert choose_provider("cpu", (TENSORRT, CUDA, CPU)) == CPU
    assert choose_provider("tensorrt", (TENSORRT, CUDA, CPU)) == TENSORRT
    with pytest.raises(ConfigError, match=r"encode\.provider: cuda is not in this ONNX Runtime, .*; set auto or cpu"):
        choose_provider("cuda", (CPU,))


def test_session_runs_graph_for_different_input_shapes(doubling: Path) -> None:
    session = GraphSession(doubling, threads=1, provider="cpu")
    assert session.provider == CPU
    for shape in ((1, 1), (3, 7), (2, 2)):
        x = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
        (y,) = session.run({"x": x}, ["y"])
        np.testing.assert_array_equal(y, 2 * x)


def test_results_stay_valid_after_next_call(doubling: Path) -> None:
    session = GraphSession(doubling, threads=1)
    (first,) = session.run({"x": np.ones((2, 2), np.int64)}, ["y"])
    session.run({"x": np.full((2, 2), 7, np.int64)}, ["y"])
    assert (first == 2).all()
