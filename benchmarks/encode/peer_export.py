"""Export a model directory with the ONNX backend of sentence-transformers.

    python -m benchmarks.encode.peer_export MODEL FOLDER

Runs in the environment of optimum (`make optimum`), which has sentence-transformers 5 and no lsr_prod. Writes the plain
graph, the graph optimized by optimum (O3) and the graph quantized for VNNI.
"""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

from sentence_transformers import SparseEncoder
from sentence_transformers.backend import export_dynamic_quantized_onnx_model, export_optimized_onnx_model


def main(model: str, folder: str) -> None:
    """Write ``FOLDER/onnx/model.onnx``, ``model_O3.onnx`` and ``model_qint8_avx512_vnni.onnx``."""
    kwargs = {"export": True, "provider": "CPUExecutionProvider"}
    encoder = SparseEncoder(model, backend="onnx", device="cpu", model_kwargs=kwargs)
    encoder.save_pretrained(folder)
    export_optimized_onnx_model(encoder, "O3", folder)
    export_dynamic_quantized_onnx_model(encoder, "avx512_vnni", folder)


if __name__ == "__main__":
    main(*sys.argv[1:3])
