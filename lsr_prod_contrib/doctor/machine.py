"""Disk, memory, file limits, compiled kernels and GPUs of this machine."""

import importlib
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from lsr_prod.errors import MissingExtraError
from lsr_prod.inference.session import load_onnxruntime

Verdict = Literal["ok", "warning", "fault"]
_GB = 10**9
_SPACE_FAULT, _SPACE_WARNING = 1 * _GB, 20 * _GB
_SLOW_MB_PER_S = 50
_WRITTEN = 64 * 2**20
_FILES_FAULT, _FILES_WARNING = 1024, 65536
_SHARED_MEMORY, _SHARED_MEMORY_BYTES = Path("/dev/shm"), 2 * _GB  # noqa: S108 (nothing is written there)


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding of one check.

    Attributes:
        check: name of the check, with what it looked at.
        verdict: ``ok``; ``warning``: jobs run, but slower or with less safety; ``fault``: jobs fail.
        found: what was measured.
        remedy: what to do; "" if it is sound.
    """

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the fields by name."""
        return asdict(self)


def check_disk(name: str, folder: Path, usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage) -> Finding:
    """Check that a folder can be written, its free space and the speed of its disk; 64 MiB are written."""
    check = f"disk of {name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = usage(folder)[2]
        if free < _SPACE_FAULT:
            return Finding(check, "fault", f"{folder}: {free / _GB:.1f} GB free", "free space, or set another folder")
        speed = _write_speed(folder)
    except OSError as error:
        return Finding(
            check, "fault", f"{folder} cannot be written ({error.strerror})", "mount a writable folder, or set another"
        )
    found = f"{folder}: {free / _GB:.0f} GB free, {speed:,.0f} MB/s"
    if free < _SPACE_WARNING:
        return Finding(check, "warning", found, f"shards and caches of large corpora need more; free {name} space")
    if speed < _SLOW_MB_PER_S:
        return Finding(check, "warning", found, "use a local disk: indexing and cold searches wait for this one")
    return Finding(check, "ok", found)


def _write_speed(folder: Path) -> float:
    """Return MB per second of writing a file and forcing it to the disk."""
    chunk = os.urandom(2**20)
    began = time.perf_counter()
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_WRITTEN // len(chunk)):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return _WRITTEN / 1e6 / (time.perf_counter() - began)


def check_file_limit(limit: int | None = None) -> Finding:
    """Check how many files a process may open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    found = "no limit" if files == resource.RLIM_INFINITY else f"{files:,} open files"
    remedy = f"raise the limit (ulimit -n {_FILES_WARNING}, LimitNOFILE= of systemd)"
    if files == resource.RLIM_INFINITY or files >= _FILES_WARNING:
        return Finding("file limit", "ok", found)
    return Finding("file limit", "fault" if files <= _FILES_FAULT else "warning", found, remedy)


def check_shared_memory(folder: Path = _SHARED_MEMORY) -> Finding:
    """Check the shared memory, in which Ray keeps the rows between reading and encoding."""
    if not folder.is_dir():
        return Finding("shared memory", "warning", f"there is no {folder}", "Ray uses the disk, which is slower")
    total = shutil.disk_usage(folder).total
    found = f"{folder}: {total / _GB:.1f} GB"
    if total < _SHARED_MEMORY_BYTES:
        return Finding(
            "shared memory", "warning", found, "give the container more (emptyDir with medium Memory, --shm-size)"
        )
    return Finding("shared memory", "ok", found)


def check_kernels(module: str = "lsr_prod.search.kernels.native") -> Finding:
    """Check that the compiled kernels can be loaded."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        remedy = "install the wheel of this platform, or run `make kernels` in a source tree"
        return Finding("kernels", "fault", str(error), remedy)
    return Finding("kernels", "ok", "compiled")


def check_gpus(devices: Sequence[str] | None = None, providers: Sequence[str] | None = None) -> Finding:
    """Check that the ONNX Runtime can use the GPUs of this machine."""
    found = sorted(map(str, Path("/dev").glob("nvidia[0-9]*"))) if devices is None else list(devices)
    if not found:
        return Finding("gpu", "ok", "none on this machine")
    if providers is None:
        try:
            providers = load_onnxruntime().get_available_providers()
        except MissingExtraError:
            providers = []
    if "CUDAExecutionProvider" in providers:
        return Finding("gpu", "ok", f"{len(found)} GPUs, {', '.join(providers)}")
    return Finding(
        "gpu",
        "fault",
        f"{len(found)} GPUs, but ONNX Runtime has only {', '.join(providers) or 'no provider'}",
        "install onnxruntime-gpu in place of onnxruntime",
    )
