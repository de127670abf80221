"""Export of a model as a bundle that runs without torch: ONNX graph, quantization, and parity check."""

from lsr_prod.model.export.bundle import export_bundle

__all__ = ["export_bundle"]
