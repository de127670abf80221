"""Worker process of the encoding benchmark: load one contestant, warm up, then encode all texts once per input line.

    python -m benchmarks.encode.worker SPEC.json

The worker imports only the libraries of its contestant, because sentence-transformers' ONNX backend runs in an
environment without lsr_prod. SPEC.json is a value of ``benchmarks.encode.against_peer.specs``. The worker prints
``ready``, then one JSON line ``{cpu_s, wall_s, rss_mb}`` for each line that it reads.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Encode = Callable[[Sequence[str]], Any]


def ours(spec: dict[str, Any]) -> Encode:
    """Return an encode function that batches like the encode job."""
    from lsr_prod.inference import BundleEncoder

    encoder = BundleEncoder(Path(spec["folder"]), threads=spec["threads"])
    return lambda texts: encoder.encode(texts, kind="document", top_k=256, batch_tokens=spec["batch"])


def ours_naive(spec: dict[str, Any]) -> Encode:
    """Return an encode function with fixed-size batches in input order, each padded to its longest text."""
    from lsr_prod.inference import BundleEncoder

    encoder = BundleEncoder(Path(spec["folder"]), threads=spec["threads"])
    size = spec["batch"]

    def encode(texts: Sequence[str]) -> list[Any]:
        starts = range(0, len(texts), size)
        return [encoder.encode(texts[i : i + size], kind="document", top_k=256, batch_tokens=1_000_000) for i in starts]

    return encode


def open_peer(spec: dict[str, Any]) -> Any:
    """Return the peer's SparseEncoder with the torch, ONNX or OpenVINO backend."""
    import torch
    from sentence_transformers import SparseEncoder

    torch.set_num_threads(spec["threads"])
    kwargs: dict[str, Any] = {}
    if spec["backend"] == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = spec["threads"]
        kwargs = {"session_options": options, "provider": "CPUExecutionProvider", "file_name": spec["file"]}
    elif spec["backend"] == "openvino":
        limits = {"INFERENCE_NUM_THREADS": spec["threads"], "NUM_STREAMS": 1}
        kwargs = {"ov_config": limits, "file_name": spec["file"]}
    elif spec["dtype"] == "bf16":
        kwargs = {"torch_dtype": torch.bfloat16}
    model = SparseEncoder(spec["folder"], backend=spec["backend"], model_kwargs=kwargs, device="cpu")
    model.max_seq_length = spec["max_length"]
    return model


def sentence_transformers(spec: dict[str, Any]) -> Encode:
    """Return the encode function of the peer."""
    model = open_peer(spec)
    return lambda texts: model.encode_document(list(texts), batch_size=spec["batch"], show_progress_bar=False)


def main(spec: dict[str, Any]) -> None:
    """Encode all texts once per input line until the input ends."""
    texts: list[str] = json.loads(Path(spec["texts"]).read_bytes())
    encode = {"ours": ours, "naive": ours_naive, "sentence-transformers": sentence_transformers}[spec["kind"]](spec)
    encode(texts[:32])
    print("ready", flush=True)
    for _ in sys.stdin:
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        encode(texts)
        after, stop = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        print(json.dumps({"cpu_s": cpu, "wall_s": stop - start, "rss_mb": after.ru_maxrss // 1024}), flush=True)


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    main(json.loads(Path(sys.argv[1]).read_bytes()))
