"""Run an encoder bundle: text in, sparse vectors out, with tokenizers and ONNX Runtime only."""

from lsr_prod.inference.encoder import BundleEncoder, Counters

__all__ = ["BundleEncoder", "Counters"]
