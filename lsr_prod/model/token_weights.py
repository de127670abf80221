"""Head of token weights: the sparse head of BGE-M3 (Chen et al., arXiv 2402.03216), without a vocabulary head.

A linear layer gives one number per token of the text, ``w_j = relu(a . h_j + b)``; the weight of a term is the maximum
over the tokens that are this term, so a vector has the terms of its text only. Special tokens have no weight. A folder
of BGE-M3 has the layer in ``sparse_linear.pt`` (or ``.safetensors``); a model directory of lsr_prod has
``sparse_linear.safetensors``: weight [1, d], bias [1].
"""

import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

from lsr_prod.errors import ConfigError
from lsr_prod.model import autoencoder, output_layer

SPARSE_LINEAR_FILE = "sparse_linear.safetensors"
_PICKLED_LINEAR, _PICKLED_WEIGHTS = "sparse_linear.pt", "pytorch_model.bin"
_LAYER = "sparse_linear"  # name of the layer in the model
# The roles that FlagEmbedding excludes, and bos and sep, which in XLM-RoBERTa are cls and eos. A mask token counts.
_UNWEIGHTED = ("cls", "bos", "eos", "sep", "pad", "unk")


def has_sparse_linear(folder: Path) -> bool:
    """Return whether a folder has the layer of a head of token weights."""
    return (folder / SPARSE_LINEAR_FILE).is_file() or (folder / _PICKLED_LINEAR).is_file()


def sparse_linear(model: PreTrainedModel) -> nn.Linear:
    """Return the layer, d to 1."""
    layer: Any = model.get_submodule(_LAYER)
    assert isinstance(layer, nn.Linear)
    return layer


def unweighted_tokens(tokenizer: PreTrainedTokenizerFast, size: int) -> Tensor:
    """Return the mask of the token ids that never have a weight, bool [size]."""
    ids = [getattr(tokenizer, f"{role}_token_id", None) for role in _UNWEIGHTED]
    mask = torch.zeros(size, dtype=torch.bool)
    mask[[number for number in ids if number is not None]] = True
    return mask


def pool_token_weights(
    hidden: Tensor, layer: nn.Linear, input_ids: Tensor, pooled: Tensor, unweighted: Tensor
) -> Tensor:
    """Return vectors over the tokens of the tokenizer.

    Returns:
        [B, V], at least 0; float32 even under autocast, or float64 for hidden states of that type.
    """
    weights = torch.relu(layer(hidden)).squeeze(-1)  # [B, L]
    weights = weights.to(torch.float64 if hidden.dtype == torch.float64 else torch.float32)
    # index_select always becomes a Gather in the graph; indexing may become a GatherND.
    counted = pooled & ~unweighted.index_select(0, input_ids.flatten()).view_as(input_ids)
    weights = torch.where(counted, weights, 0.0)
    # len() would fix the number of texts in an exported graph.
    return weights.new_zeros(weights.shape[0], unweighted.shape[0]).scatter_reduce(1, input_ids, weights, "amax")


def read_backbone(folder: Path, config: PreTrainedConfig) -> PreTrainedModel:
    """Read XLM-RoBERTa without its pooling layer, and the layer of token weights.

    Weights are read from safetensors, or from the pickle files of BGE-M3 with torch's restricted unpickler, which
    builds tensors only.
    """
    if not isinstance(config, XLMRobertaConfig):
        raise ConfigError(
            "source", f"a {config.model_type} with token weights is not supported", "give a model such as BAAI/bge-m3"
        )
    model: PreTrainedModel = XLMRobertaModel(config, add_pooling_layer=False)
    prefix = "roberta."  # of weights that were saved by a class with a head
    weights = _read(folder, "model.safetensors", _PICKLED_WEIGHTS)
    weights = {name.removeprefix(prefix): value.to(torch.float32) for name, value in weights.items()}
    missing = model.state_dict().keys() - weights.keys()
    if missing:
        raise ConfigError("source", f"{folder} has no weights for {', '.join(sorted(missing)[:3])}", "copy it again")
    layer = _read(folder, SPARSE_LINEAR_FILE, _PICKLED_LINEAR)
    model.add_module(_LAYER, nn.Linear(int(config.hidden_size), 1))
    own = {name: value for name, value in weights.items() if name in model.state_dict()}
    parts = {f"{_LAYER}.{name}": value.to(torch.float32) for name, value in layer.items()}
    try:
        model.load_state_dict({**own, **parts})
    except RuntimeError as error:
        raise ConfigError(
            "source", f"the weights of {folder} do not fit together ({error})", "copy it again"
        ) from error
    return model


def weights_of_backbone(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights that transformers saves, without the layer of a head."""
    layers = (f"{_LAYER}.", f"{autoencoder.AUTOENCODER}.")
    return {name: value for name, value in model.state_dict().items() if not name.startswith(layers)}


def save_sparse_linear(folder: Path, model: PreTrainedModel) -> None:
    """Write ``sparse_linear.safetensors``."""
    output_layer.save_tensors(folder / SPARSE_LINEAR_FILE, sparse_linear(model).state_dict())


def _read(folder: Path, name: str, pickled: str) -> dict[str, Tensor]:
    """Read tensors by name from a safetensors file or, if there is none, from a pickle file, without running code."""
    path = folder / (name if (folder / name).is_file() else pickled)
    try:
        if path.name == name:
            return load_file(path)
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ConfigError("source", f"{folder} has neither {name} nor {pickled}", "copy it again") from error
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ConfigError("source", f"{path} is damaged, or has more than tensors", "copy it again") from error
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ConfigError("source", f"{path} is not a mapping of names to tensors", "copy it again")
    return found
