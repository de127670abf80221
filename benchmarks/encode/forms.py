"""Forms of the models in the encoding benchmark: our bundles, and the peer's graphs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FORMS = ("fp32", "int8", "int8 cut")


PEER_FORMS = {  # name -> backend, file, and the best batch size of those tried
    "onnx": ("onnx", "model.onnx", 2),
    "onnx O3": ("onnx", "model_O3.onnx", 2),
    "onnx 8-bit": ("onnx", "model_qint8_avx512_vnni.onnx", 2),
    "openvino": ("openvino", "openvino_model.xml", 2),
    "openvino 8-bit": ("openvino", "openvino_model_qint8_quantized.xml", 2),
}


def export_peer(model: Path, python: str | None, calibration: Path) -> Path | None:
    """Export the peer's graphs and return their folder, or None without the peer's environment."""
    if python is None:
        print("no --peer-python: sentence-transformers' ONNX and OpenVINO backends are skipped")
        return None
    folder = model.with_name(f"peer-{model.name}")
    subprocess.run(
        [
            python,
            "-m",
            "benchmarks.encode.peer_export",
            str(model.absolute()),
            str(folder.absolute()),
            str(calibration.absolute()),
        ],
        cwd=ROOT,
        check=True,
        stdout=sys.stderr,
    )
    return folder


def peer_spec(name: str, folder: Path) -> dict[str, Any]:
    """Return the part of a spec that opens a form of the peer."""
    backend, file, batch = PEER_FORMS[name]
    return {"kind": "sentence-transformers", "backend": backend, "file": file, "folder": str(folder), "batch": batch}


def read_texts(path: Path) -> list[str]:
    """Title and text of every document."""
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [" ".join(part for part in (row.get("title"), row["text"]) if part) for row in rows]
