"""The torch side of an encoder: language models as sparse encoders, and the model directory that stores them."""

from lsr_prod.model.directory import model_digest
from lsr_prod.model.encoder import SparseEncoder

__all__ = ["SparseEncoder", "model_digest"]
