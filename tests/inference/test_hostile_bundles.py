"""Bundles whose manifest is right and whose files are not what an export writes end in one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lsr_prod.errors import ArtifactError, EncoderRaisedError
from lsr_prod.inference import BundleEncoder
from lsr_prod.storage.formats.bundle_format import GRAPH_FILE

Change = Callable[[Path], object]


def of_graph(nodes: list[onnx.NodeProto], *constants: onnx.TensorProto) -> Change:
    """Put a graph of three inputs in place of the model."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "tokens"]) for name in names]
    outputs = [
        helper.make_tensor_value_info("terms", TensorProto.INT64, None),
        helper.make_tensor_value_info("weights", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return lambda folder: (folder / GRAPH_FILE).write_bytes(model.SerializeToString())


def returning(terms: npt.NDArray[np.int64], weights: npt.NDArray[np.float32]) -> Change:
    nodes = [helper.make_node("Identity", [f"{name}_"], [name]) for name in ("terms", "weights")]
    return of_graph(nodes, numpy_helper.from_array(terms, "terms_"), numpy_helper.from_array(weights, "weights_"))


def outside_the_folder() -> Change:
    tensor = TensorProto(name="weights_", data_type=TensorProto.FLOAT, dims=[2, 2])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "../../../../etc/passwd"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    nodes = [
        helper.make_node("Identity", ["input_ids"], ["terms"]),
        helper.make_node("Identity", ["weights_"], ["weights"]),
    ]
    return of_graph(nodes, tensor)


def allocating() -> Change:
    nodes = [
        helper.make_node("Identity", ["input_ids"], ["terms"]),
        helper.make_node("ConstantOfShape", ["shape"], ["weights"]),
    ]
    return of_graph(nodes, numpy_helper.from_array(np.array([1 << 50], np.int64), "shape"))


def of_file(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content)


def of_card(**values: object) -> Change:
    def change(folder: Path) -> None:
        card = folder / "encoder_card.json"
        card.write_text(json.dumps(json.loads(card.read_bytes()) | values))

    return change


ONE = np.ones((1, 2), np.float32)


@pytest.mark.parametrize(
    "change",
    [
        of_file(GRAPH_FILE, "no graph"),
        of_file(GRAPH_FILE, ""),
        outside_the_folder(),
        allocating(),
        returning(np.array([[1, 1 << 40]]), ONE),
        returning(np.array([[1, -5]]), ONE),
        returning(np.array([[1, 2]] * 7), np.ones((7, 2), np.float32)),
        returning(np.array(5), ONE),
        returning(np.array([[1, 2]]), ONE * np.nan),
        of_file("tokenizer.json", "{}"),
        of_file("tokenizer.json", "[" * 100_000),
        of_file("config.json", "[]"),
        of_file("config.json", "[" * 100_000),
        of_file("config.json", '{"pad_token_id": "x"}'),
        of_file("config.json", '{"pad_token_id": 10000000000000}'),
        of_card(query_max_length=0),
        of_card(document_max_length=10**13),
    ],
)
def test_hostile_bundle_is_refused_when_it_is_opened(change: Change, tiny_bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_bundle, tmp_path / "bundle")
    change(tmp_path / "bundle")
    with pytest.raises(ArtifactError):
        BundleEncoder(tmp_path / "bundle")


def test_graph_that_returns_another_number_of_rows_later_fails_by_name(tiny_bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_bundle, tmp_path / "bundle")
    returning(np.array([[1, 2]]), ONE)(tmp_path / "bundle")
    encoder = BundleEncoder(tmp_path / "bundle")
    with pytest.raises(EncoderRaisedError, match="the graph returned"):
        encoder.encode(["one", "two"], kind="document")
