"""Run an encoder bundle: texts to sparse vectors, with tokenizers and ONNX Runtime only.

Names are imported on first use: inference-free queries read the terms of texts without an encoder.
"""

from typing import TYPE_CHECKING

from lsr_prod.extras import lazy_names

if TYPE_CHECKING:
    from lsr_prod.inference.encoder import BundleEncoder, Counters

__all__ = ["BundleEncoder", "Counters"]

__getattr__ = lazy_names(__name__, dict.fromkeys(__all__, "lsr_prod.inference.encoder"))
