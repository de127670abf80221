"""Heads of appended tokens (UEmbed, arXiv 2608.02583): each token after a text computes a part of the vocabulary.

N special tokens follow the text, see ``template_tokens``. The rows of the output matrix are split into N disjoint
heads, and head i reads only the state of the i-th appended token, ``w_v = log(1 + relu(h_i . W_v + b_v))``: one product
per term in place of one per term and token. A model directory has the split in ``appended_heads.safetensors``:
``heads`` int16 [rows of the output matrix], 0..N-1.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from lsr_prod.errors import ConfigError
from lsr_prod.model.output_layer import save_tensors

APPENDED_HEADS_FILE = "appended_heads.safetensors"
_ROUNDS = 10  # of k-means


class AppendedHeads(torch.nn.Module):
    """Split of the rows of an output matrix into one head per appended token.

    Attributes:
        heads: int64 [V], the appended token that computes each row's term, 0..N-1.
    """

    heads: torch.Tensor
    _order: torch.Tensor
    _places: torch.Tensor

    def __init__(self, heads: torch.Tensor, count: int) -> None:
        """Prepare the products of ``count`` heads."""
        super().__init__()
        heads = heads.to(torch.int64)
        order = heads.argsort(stable=True)
        for name, value in (("heads", heads), ("_order", order), ("_places", order.argsort())):
            self.register_buffer(name, value, persistent=False)
        self._sizes: list[int] = heads.bincount(minlength=count).tolist()

    @classmethod
    def of_matrix(cls, matrix: torch.Tensor, count: int) -> "AppendedHeads":
        """Split an output matrix [V, d] by k-means over its rows at unit length; no random numbers are used."""
        rows = torch.nn.functional.normalize(matrix.detach().float().cpu(), dim=1)
        centers = rows[torch.arange(count) * len(rows) // count]
        nearest = torch.zeros(len(rows), dtype=torch.int64)
        for _ in range(_ROUNDS):
            nearest = (rows @ centers.t()).argmax(dim=1)
            centers = torch.nn.functional.normalize(torch.zeros_like(centers).index_add_(0, nearest, rows), dim=1)
        return cls(nearest, count)

    @property
    def count(self) -> int:
        """Number of heads."""
        return len(self._sizes)

    def restricted(self, rows: torch.Tensor) -> "AppendedHeads":
        """Return the heads of some rows of the output matrix."""
        return AppendedHeads(self.heads[rows], self.count)

    def forward(self, states: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Return the logits [B, V] of the states [B, N, d]; float32 even under autocast."""
        kind = torch.float64 if states.dtype == torch.float64 else torch.float32
        # index_select always becomes a Gather in an exported graph; a head without terms would be an empty product.
        products = [
            (states[:, i] @ matrix.index_select(0, rows).t()).to(kind)
            for i, rows in enumerate(torch.split(self._order, self._sizes))
            if self._sizes[i]
        ]
        logits = torch.cat(products, dim=1).index_select(1, self._places)
        return logits if bias is None else logits + bias.to(kind)


def save_appended_heads(folder: Path, heads: AppendedHeads) -> None:
    """Write ``appended_heads.safetensors``."""
    save_tensors(folder / APPENDED_HEADS_FILE, {"heads": heads.heads.to(torch.int16)})


def load_appended_heads(folder: Path, rows: int, count: int) -> AppendedHeads:
    """Read ``appended_heads.safetensors`` of a model whose output matrix has a number of rows."""
    path = folder / APPENDED_HEADS_FILE
    try:
        heads = load_file(path)["heads"]
    except (FileNotFoundError, SafetensorError, KeyError) as error:
        raise ConfigError("source", f"{path} is absent or damaged", "copy the folder of the model again") from error
    if heads.shape != (rows,) or heads.min() < 0 or heads.max() >= count:
        raise ConfigError("source", f"{path} does not split {rows} rows into {count} heads", "copy the folder again")
    return AppendedHeads(heads, count)
