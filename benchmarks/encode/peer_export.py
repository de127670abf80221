"""Export a model directory with the ONNX and OpenVINO backends of sentence-transformers.

    python -m benchmarks.encode.peer_export MODEL FOLDER TEXTS.json

Runs in the environment of optimum (`make optimum`), which has sentence-transformers 5 and no lsr_prod. Writes the plain
graphs, the ONNX graphs optimized by optimum (O3) and quantized for VNNI (dynamic), and OpenVINO's static quantization
``qint8``, calibrated with TEXTS: the forms that sentence-transformers recommends for a CPU.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from sentence_transformers import SparseEncoder
from sentence_transformers.backend import (
    export_dynamic_quantized_onnx_model,
    export_optimized_onnx_model,
    export_static_quantized_openvino_model,
)


def main(model: str, folder: str, texts: str) -> None:
    """Write ``FOLDER/onnx/model*.onnx`` and ``FOLDER/openvino/openvino_model*.xml``."""
    kwargs = {"export": True, "provider": "CPUExecutionProvider"}
    encoder = SparseEncoder(model, backend="onnx", device="cpu", model_kwargs=kwargs)
    encoder.save_pretrained(folder)
    export_optimized_onnx_model(encoder, "O3", folder)
    export_dynamic_quantized_onnx_model(encoder, "avx512_vnni", folder)
    encoder = SparseEncoder(model, backend="openvino", device="cpu", model_kwargs={"export": True})
    encoder.save_pretrained(folder)
    with tempfile.TemporaryDirectory() as scratch:
        rows = [json.dumps({"sentence": text}) + "\n" for text in json.loads(Path(texts).read_bytes())]
        Path(scratch, "train.jsonl").write_text("".join(rows))
        export_static_quantized_openvino_model(
            encoder, None, folder, dataset_name=scratch, dataset_config_name="default", dataset_split="train",
            column_name="sentence",
        )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:4])
