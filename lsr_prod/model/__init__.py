"""The torch side of an encoder: language models as sparse encoders, and the model directory that stores them.

The names in ``__all__`` are imported on first use: a process that only reads files of a model needs no torch.
"""

from typing import TYPE_CHECKING

from lsr_prod.extras import lazy_names

if TYPE_CHECKING:
    from lsr_prod.model.directory import model_digest
    from lsr_prod.model.encoder import SparseEncoder

__all__ = ["SparseEncoder", "model_digest"]

__getattr__ = lazy_names(
    __name__, {"SparseEncoder": "lsr_prod.model.encoder", "model_digest": "lsr_prod.model.directory"}
)
