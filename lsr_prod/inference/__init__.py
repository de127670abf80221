"""Run an encoder bundle: texts to sparse vectors, with tokenizers and ONNX Runtime only."""

from lsr_prod.inference.encoder import BundleEncoder, Counters

__all__ = ["BundleEncoder", "Counters"]
