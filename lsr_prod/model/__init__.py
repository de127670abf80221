"""The torch side of an encoder: masked language models as sparse encoders, and the model directory they live in."""

from lsr_prod.model.directory import model_digest
from lsr_prod.model.encoder import SparseEncoder

__all__ = ["SparseEncoder", "model_digest"]
