"""Sparse autoencoder on a dense vector of the text: CSR (Wen et al., arXiv 2503.01776), as in sentence-transformers.

The states of the backbone are averaged, or the first one is taken; the vector x may be scaled. The latents are the
output terms, ``latent_0`` and so on: ``w = relu(top_k(W (x - p) + b))`` with the k of the card, ``max_terms``. A model
directory has the layer where sentence-transformers has it, in the folder of its module ``SparseAutoEncoder``.
"""

from pathlib import Path
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from lsr_prod.errors import ConfigError
from lsr_prod.model.output_layer import read_tensors, save_tensors

AUTOENCODER = "autoencoder"
"""Name of the layer in the model, and of the head in the card."""

# Names in a folder of sentence-transformers, which writes its tied matrix under one of two names.
_PRE_BIAS, _BIAS, _MATRIX, _TIED_MATRIX = "pre_bias", "latent_bias", "encoder.weight", "decoder.linear.weight"
_UNUSED = "stats_last_nonzero"  # only training reads it
_EPSILON = 1e-5


class Autoencoder(torch.nn.Linear):
    """The encoder of a sparse autoencoder: a linear layer of a shifted vector."""

    def __init__(self, matrix: torch.Tensor, bias: torch.Tensor, pre_bias: torch.Tensor) -> None:
        """Use matrix [V, d], bias [V] and shift [d]."""
        super().__init__(matrix.shape[1], matrix.shape[0], device="meta")
        self.weight, self.bias = torch.nn.Parameter(matrix), torch.nn.Parameter(bias)
        self.pre_bias = torch.nn.Parameter(pre_bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the latents before the activation: [B, d] -> [B, V]."""
        return super().forward(states - self.pre_bias)


def autoencoder_of(model: PreTrainedModel) -> Autoencoder:
    """Return the layer of a model."""
    return cast("Autoencoder", model.get_submodule(AUTOENCODER))


def latent_terms(size: int) -> list[str]:
    """Return the output terms."""
    return [f"latent_{i}" for i in range(size)]


def latent_weights(states: torch.Tensor, layer: Autoencoder, pooled: torch.Tensor, scaling: str) -> torch.Tensor:
    """Return the latents of texts with one state each, [B, 1, d] -> [B, V], at least 0, without the limit k.

    A text without pooled positions becomes the zero vector.
    """
    vectors = states.squeeze(1)
    if scaling in ("length", "both"):
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
    if scaling in ("variance", "both"):
        centered = vectors - vectors.mean(dim=-1, keepdim=True)
        variance = centered.square().sum(dim=-1, keepdim=True) / (vectors.shape[-1] - 1)
        vectors = centered / (variance.sqrt() + _EPSILON)
    return torch.where(pooled, torch.relu(layer(vectors)), 0.0)


def add_autoencoder(model: PreTrainedModel, folder: Path) -> None:
    """Add the layer that a folder of the module ``SparseAutoEncoder`` has."""
    path = folder / "model.safetensors"
    found = read_tensors(path)
    matrix = found.get(_MATRIX, found.get(_TIED_MATRIX))
    bias, pre_bias = found.get(_BIAS), found.get(_PRE_BIAS)
    width = int(model.config.hidden_size)
    if matrix is None or bias is None or pre_bias is None or matrix.shape[1:] != (width,):
        raise ConfigError("source", f"{path} has no autoencoder of vectors of {width} values", "copy it again")
    if bias.shape != matrix.shape[:1] or pre_bias.shape != (width,):
        raise ConfigError("source", f"the weights of {path} do not fit together", "copy it again")
    model.add_module(AUTOENCODER, Autoencoder(matrix, bias, pre_bias))


def save_autoencoder(path: Path, model: PreTrainedModel) -> None:
    """Write ``model.safetensors`` of the module ``SparseAutoEncoder``."""
    layer: Any = autoencoder_of(model)
    unused = torch.zeros(len(layer.bias), dtype=torch.int64)
    save_tensors(path, {_TIED_MATRIX: layer.weight, _BIAS: layer.bias, _PRE_BIAS: layer.pre_bias, _UNUSED: unused})
