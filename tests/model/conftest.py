"""Fixtures of the tests of models."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
import torch

Traces = dict[tuple[object, ...], onnx.ModelProto]


@pytest.fixture(scope="session", autouse=True)
def _onnx_functions_are_read_once() -> Iterator[None]:
    """Torch parses the source of all its ONNX functions in each export, a fifth of the time of a tiny model."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry  # private: there is no public way to pass it

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
        yield


@pytest.fixture(scope="module")
def traced_once() -> Iterator[Traces]:
    """Torch traces a model once per file, which takes 5 s; what a precision does with the graph comes after it.

    A test that needs a second trace clears the dictionary.
    """
    known: Traces = {}
    trace = torch.onnx.export

    def export(module: Any, *args: Any, **options: Any) -> SimpleNamespace:
        weights = sha256()
        for name, tensor in module.state_dict().items():
            weights.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
        key = (type(module), module.k, replace(module.encoder.card, parents=()), weights.digest())
        if key not in known:
            program = trace(module, *args, **options)
            assert program is not None
            known[key] = program.model_proto
        model = onnx.ModelProto()
        model.CopyFrom(known[key])
        return SimpleNamespace(model_proto=model)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", export)
        yield known
