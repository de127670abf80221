"""From torch to a bundle that runs without it: the ONNX graph, its quantisation, and the check that rankings stay."""

from lsr_prod.export.bundle import export_bundle

__all__ = ["export_bundle"]
