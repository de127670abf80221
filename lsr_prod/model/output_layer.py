"""Separate output layer of an encoder: with other terms than the tokenizer's, or with a bias that it had not.

It is stored in the model directory in addition to the weights that transformers reads::

    output_layer.safetensors   weight [U, d], absent if tied to the input embeddings; bias [U], absent without a bias
    output_vocabulary.json     the U terms, absent if they are the tokenizer's tokens
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from lsr_prod.errors import ConfigError
from lsr_prod.storage.drafts import write_file
from lsr_prod.storage.formats.digests import read_record, record_bytes

OUTPUT_LAYER_FILE = "output_layer.safetensors"
OUTPUT_VOCABULARY_FILE = "output_vocabulary.json"


class OutputLayer(torch.nn.Linear):
    """An output matrix [U, d], with or without a bias, that replaces that of the architecture."""

    def __init__(self, weight: torch.nn.Parameter, bias: torch.nn.Parameter | None) -> None:
        """Use the parameters without a copy."""
        super().__init__(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        self.weight = weight
        if bias is not None:
            self.bias = bias


def replace_output_layer(model: PreTrainedModel, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Replace the output matrix by an untied one of U terms; the input embeddings stay."""
    place = _layer(model).weight
    width = place.shape[1]
    if weight.ndim != 2 or weight.shape[1] != width:
        raise ConfigError("head", f"its rows have {weight.shape[-1]} values", f"this model's head needs {width}")
    _put(model, _parameter(weight, place), bias)
    model.config.tie_word_embeddings = False


def add_output_bias(model: PreTrainedModel, bias: torch.Tensor) -> None:
    """Add a bias to a head that has none; the output matrix stays, tied to the input embeddings or not."""
    layer = _layer(model)
    if layer.bias is not None:
        raise ConfigError("head", f"{type(model).__name__} has a bias already", "change that one")
    _put(model, cast("torch.nn.Parameter", layer.weight), bias)


def has_own_output_layer(model: PreTrainedModel) -> bool:
    """Return whether the model has a separate output layer instead of that of the architecture."""
    return isinstance(_output(model), OutputLayer)


def output_layer_names(model: PreTrainedModel) -> set[str]:
    """Return the names of the output layer's parameters; some heads register their bias under a second name."""
    name, parent = _names(model)
    prefix = f"{parent}." if parent else ""
    return {f"{name}.weight", f"{name}.bias", f"{prefix}bias"}


def weights_without_output_layer(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the weights that transformers saves for a model with a separate output layer."""
    excluded = output_layer_names(model)
    return {name: value for name, value in model.state_dict().items() if name not in excluded}


def save_output_layer(folder: Path, model: PreTrainedModel) -> None:
    """Write ``output_layer.safetensors``."""
    layer = _layer(model)
    tensors = {} if is_tied(model) else {"weight": layer.weight}
    if layer.bias is not None:
        tensors["bias"] = layer.bias
    save_tensors(folder / OUTPUT_LAYER_FILE, tensors)


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a file of safetensors next to ``config.json``."""
    contents = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(contents, path, metadata={"format": "pt"})
    # safetensors creates its file readable by the owner only; the other files follow the umask.
    path.chmod(path.with_name("config.json").stat().st_mode)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Read a file of safetensors, as float32."""
    if not path.is_file():
        raise ConfigError("source", f"{path.parent} has no {path.name}", "copy it again")
    try:
        found = load_file(path)
    except SafetensorError as error:
        raise ConfigError("source", f"{path} is damaged ({error})", "copy it again") from error
    return {name: tensor.to(torch.float32) for name, tensor in found.items()}


def load_output_layer(folder: Path, model: PreTrainedModel) -> None:
    """Load ``output_layer.safetensors`` into a model whose other weights are already loaded."""
    tensors = read_tensors(folder / OUTPUT_LAYER_FILE)
    if "weight" in tensors:
        replace_output_layer(model, tensors["weight"], tensors.get("bias"))
    else:
        add_output_bias(model, tensors["bias"])


def write_output_vocabulary(folder: Path, vocabulary: list[str]) -> None:
    """Write ``output_vocabulary.json``."""
    write_file(folder / OUTPUT_VOCABULARY_FILE, record_bytes(vocabulary))


def read_output_vocabulary(folder: Path) -> list[str]:
    """Read ``output_vocabulary.json``."""

    def parse(vocabulary: Any) -> list[str]:
        if not isinstance(vocabulary, list) or not all(isinstance(term, str) for term in vocabulary):
            raise TypeError("not a list of terms")
        return vocabulary

    return read_record(folder / OUTPUT_VOCABULARY_FILE, parse, "save the model again")


def _put(model: PreTrainedModel, weight: torch.nn.Parameter, values: torch.Tensor | None) -> None:
    """Replace the output layer by one of this weight, and of a bias with these values."""
    if values is not None and values.shape != weight.shape[:1]:
        raise ConfigError("head", f"{len(weight)} rows have {len(values)} biases", "give one bias per row")
    bias = None if values is None else _parameter(values, weight)
    name, parent = _names(model)
    model.set_submodule(name, OutputLayer(weight, bias))
    owner: Any = model.get_submodule(parent)
    if "bias" in owner._parameters:  # a second name of the same bias; the old one must not stay as an unused parameter
        owner._parameters["bias"] = bias


def _layer(model: PreTrainedModel) -> torch.nn.Linear:
    layer: Any = _output(model)
    assert isinstance(layer, torch.nn.Linear)
    return layer


def _output(model: Any) -> torch.nn.Module:
    layer: torch.nn.Module = model.get_output_embeddings()
    return layer


def _names(model: PreTrainedModel) -> tuple[str, str]:
    """Return the names of the output layer and of its parent module."""
    layer = _output(model)
    name = next(name for name, module in model.named_modules() if module is layer)
    return name, name.rpartition(".")[0]


def is_tied(model: PreTrainedModel) -> bool:
    """Return whether the output matrix is tied to the input embeddings."""
    return _layer(model).weight is model.get_input_embeddings().weight


def _parameter(value: torch.Tensor, like: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(value.detach().to(device=like.device, dtype=like.dtype).clone())
