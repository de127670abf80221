"""Bundles on each execution provider: parity with the CPU, speed of the graph, and the whole encode job."""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.material import more_texts
from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, ExportSettings
from lsr_prod.encoding import encode_corpus
from lsr_prod.inference import BundleEncoder
from lsr_prod.inference.session import Provider, load_onnxruntime
from lsr_prod.model.export import export_bundle
from lsr_prod.storage.formats.sparse import SparseBatch

PRECISIONS = ("fp32", "fp16", "int8")
_PROVIDERS: dict[Provider, str] = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
_BETWEEN_S = 0.1  # two readings of how busy the GPU is


def providers() -> list[Provider]:
    """The providers of this ONNX Runtime that work on a GPU here; ``cpu`` where there is none."""
    if not _has_gpu():
        return ["cpu"]
    available = load_onnxruntime().get_available_providers()
    return [name for name, full in _PROVIDERS.items() if full in available and _opens(name)] or ["cpu"]


def _has_gpu() -> bool:
    # Running the bare name raises PermissionError where PATH names a folder that is closed to this user.
    command = shutil.which("nvidia-smi")
    return command is not None and subprocess.run([command, "-L"], capture_output=True, check=False).returncode == 0


def _opens(name: Provider) -> bool:
    if name != "tensorrt":
        return True
    try:
        import tensorrt  # noqa: F401
    except ImportError:
        return False
    return True


def export(model: Path, folder: Path, precision: str) -> dict[str, Any]:
    """Export one bundle; its figures."""
    settings = ExportSettings(
        model=str(model), output=str(folder / precision), precision=precision, int8_min_overlap=0.5
    )
    return dict(export_bundle(settings))


def parity(folder: Path, texts: Sequence[str]) -> dict[str, float]:
    """Difference of each provider's vectors from the CPU's, for each precision, and values that are not finite."""
    found: dict[str, float] = {}
    for precision in PRECISIONS:
        cpu = BundleEncoder(folder / precision, threads=8).encode(texts, kind="document")
        for provider in providers():
            other = BundleEncoder(folder / precision, provider=provider).encode(texts, kind="document")
            name = f"parity_{precision}_{provider}"
            found[f"{name}_overlap"] = round(_overlap(cpu, other), 4)
            found[f"{name}_difference"] = round(_difference(cpu, other), 5)
    return found


def _overlap(one: SparseBatch, other: SparseBatch) -> float:
    """Mean share of terms that both vectors of a text have."""
    shared = [len(np.intersect1d(one.row(i)[0], other.row(i)[0])) / max(len(one.row(i)[0]), 1) for i in range(len(one))]
    return float(np.mean(shared))


def _difference(one: SparseBatch, other: SparseBatch) -> float:
    """Largest difference of a weight that both vectors of a text have."""
    largest = 0.0
    for i in range(len(one)):
        _, ours, theirs = np.intersect1d(one.row(i)[0], other.row(i)[0], return_indices=True)
        gaps = np.abs(one.row(i)[1][ours] - other.row(i)[1][theirs])
        largest = max(largest, float(gaps.max(initial=0.0)))
    return largest


class Busy:
    """How busy the GPU was while a block ran: readings of ``nvidia-smi``, percent; NaN without a GPU."""

    def __init__(self) -> None:
        self.readings: list[float] = []

    @property
    def share(self) -> float:
        """Mean share of time in which a kernel ran, from the first to the last one."""
        busy = np.flatnonzero(self.readings)
        if not len(busy):
            return float("nan")
        return round(float(np.mean(self.readings[busy[0] : busy[-1] + 1])) / 100, 3)


@contextmanager
def watched() -> Iterator[Busy]:
    """Read how busy the GPU is, in another thread."""
    busy = Busy()
    if not _has_gpu():
        yield busy
        return
    command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    with subprocess.Popen(
        [*command, f"--loop-ms={int(1000 * _BETWEEN_S)}"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        lines = child.stdout
        reader = threading.Thread(target=lambda: busy.readings.extend(float(line) for line in lines))
        reader.start()
        try:
            yield busy
        finally:
            child.terminate()
            reader.join()


def speed(folder: Path, texts: Sequence[str], sizes: Sequence[int], seconds: float) -> list[dict[str, Any]]:
    """Documents and tokens per second of each bundle in this process, tokens made beforehand."""
    rows: list[dict[str, Any]] = []
    for precision in PRECISIONS:
        for provider in providers():
            encoder = BundleEncoder(folder / precision, provider=provider, threads=1)
            ids = encoder.token_ids(texts, kind="document")
            # ONNX Runtime has no product of 8-bit integers for CUDA: they run on the CPU.
            for size in sizes[:1] if precision == "int8" and provider != "cpu" else sizes:
                rows.append({"bundle": precision, "provider": provider, "batch_tokens": size})
                rows[-1] |= _rate(encoder, ids, size, seconds)
    return rows


def _rate(encoder: BundleEncoder, ids: Sequence[Sequence[int]], size: int, seconds: float) -> dict[str, float]:
    """Call the graph until the time is over; the first call is not timed."""
    some = max(1, 4 * size * len(ids) // sum(map(len, ids)))  # texts of about four batches
    starts = cycle(range(0, max(1, len(ids) - some + 1), some))
    encoder.encode_ids(ids[:some], batch_tokens=size)
    before, began = encoder.counters, time.perf_counter()
    with watched() as busy:
        while time.perf_counter() - began < seconds:
            start = next(starts)
            encoder.encode_ids(ids[start : start + some], batch_tokens=size)
        took = time.perf_counter() - began
    done = encoder.counters - before
    return {
        "docs_per_s": round(done.documents / took, 1),
        "tokens_per_s": round(done.tokens / took),
        "busy": busy.share,
    }


def tokenize(folder: Path, texts: Sequence[str]) -> dict[str, float]:
    """Documents per second that one thread tokenizes."""
    encoder = BundleEncoder(folder / PRECISIONS[0])
    began = time.perf_counter()
    tokens = sum(map(len, encoder.token_ids(texts, kind="document")))
    took = time.perf_counter() - began
    return {"tokenize_docs_per_s": round(len(texts) / took, 1), "tokens_per_doc": round(tokens / len(texts), 1)}


def encode_job(
    bundle: Path, texts: Sequence[str], folder: Path, documents: int, settings: dict[str, Any], price: float
) -> dict[str, Any]:
    """The encode job on a local Ray, from JSON lines to a committed table."""
    folder.mkdir(parents=True)
    (folder / "corpus").mkdir()
    made = more_texts(texts, documents)
    for number, start in enumerate(range(0, documents, -(-documents // 8))):
        with (folder / "corpus" / f"{number}.jsonl").open("w", encoding="utf-8") as file:
            for i, text in enumerate(made[start : start + -(-documents // 8)], start):
                file.write(json.dumps({"_id": f"d{i}", "text": text}) + "\n")
    deployment = Deployment.model_validate(
        {
            "source": {"paths": [str(folder / "corpus")]},
            "encode": {"bundle": str(bundle), "table": str(folder / "table"), **settings},
        }
    )
    with ray_session(deployment.ray), watched() as busy:
        began = time.perf_counter()
        summary = encode_corpus(deployment)
        took = time.perf_counter() - began
    per_second = summary.encoded / summary.encode_seconds
    return {
        **{f"job_{name}": value for name, value in settings.items()},
        "job_documents": summary.documents,
        "job_docs_per_s": round(per_second, 1),
        "job_tokens_per_s": round(summary.tokens / summary.encode_seconds),
        "job_seconds": round(took, 1),
        "job_encode_seconds": round(summary.encode_seconds, 1),
        "job_model_busy": round(summary.busy_share, 3),
        "job_gpu_busy": busy.share,
        "job_usd_per_million": round(price / 3600 / per_second * 1e6, 3),
    }
