"""One graph in ONNX Runtime: which device runs it, and arrays in and out through an I/O binding."""

import logging
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ConfigError, MissingExtraError

__all__ = ["GraphSession", "Provider", "choose_provider"]

log = logging.getLogger(__name__)

Provider = Literal["auto", "cpu", "cuda", "tensorrt"]

# In the order of `auto`: TensorRT compiles an engine for every new shape, CUDA starts at once.
_NAMES = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider", "cpu": "CPUExecutionProvider"}


def choose_provider(wanted: Provider, available: Sequence[str]) -> str:
    """ONNX Runtime's name of the execution provider to use.

    Args:
        wanted: the setting ``encode.provider``; ``auto`` takes the first of cuda, tensorrt and cpu that is there.
        available: what ``onnxruntime.get_available_providers`` returns.

    Raises:
        ConfigError: the provider that was asked for is not in this installation.
    """
    if wanted == "auto":
        return next(name for name in _NAMES.values() if name in available)
    if _NAMES[wanted] not in available:
        raise ConfigError(
            "encode.provider",
            f"{wanted} is not in this ONNX Runtime, which has {', '.join(available)}",
            "set auto or cpu, or install onnxruntime-gpu in place of onnxruntime",
        )
    return _NAMES[wanted]


class GraphSession:
    """A loaded graph. Safe to share between threads: every call has a binding of its own.

    Attributes:
        provider: name of the execution provider that runs it.
    """

    def __init__(self, path: Path, *, threads: int, provider: Provider = "auto") -> None:
        """Load ``path``.

        Args:
            path: the ONNX file.
            threads: threads of one call on a CPU.
            provider: where it runs.

        Raises:
            MissingExtraError: ONNX Runtime is not installed.
            ConfigError: the provider is not available, or does not start.
        """
        try:
            import onnxruntime as ort
        except ImportError as error:
            raise MissingExtraError("onnxruntime", "cpu") from error
        self.provider = choose_provider(provider, ort.get_available_providers())
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Threads that wait for the next operator in a busy loop burn cores that other actors need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # What TensorRT cannot run goes to CUDA, what CUDA cannot run to the CPU.
        order = (_NAMES["tensorrt"], _NAMES["cuda"], _NAMES["cpu"])
        if _saturates():
            options.add_session_config_entry("session.x64quantprecision", "1")
        providers = [name for name in order[order.index(self.provider) :] if name in ort.get_available_providers()]
        self._session: Any = ort.InferenceSession(path, options, providers=providers)
        if self._session.get_providers()[0] != self.provider:  # ONNX Runtime goes on with the CPU without an error
            raise ConfigError("encode.provider", f"{self.provider} did not start", "see ONNX Runtime's log, or set cpu")
        self._device = "cpu" if self.provider == _NAMES["cpu"] else "cuda"
        self._value: Any = ort.OrtValue.ortvalue_from_numpy
        log.info("opened a graph", extra={"fields": {"provider": self.provider, "asked": provider, "threads": threads}})

    def run(self, feed: Mapping[str, npt.NDArray[np.int64]], outputs: Sequence[str]) -> list[npt.NDArray[Any]]:
        """The arrays ``outputs`` of one call."""
        binding = self._session.io_binding()
        for name, array in feed.items():
            binding.bind_ortvalue_input(name, self._value(array, self._device, 0))
        for name in outputs:
            binding.bind_output(name, self._device)
        self._session.run_with_iobinding(binding)
        arrays: list[npt.NDArray[Any]] = binding.copy_outputs_to_cpu()
        return arrays


def _saturates() -> bool:
    """Whether sums of products of unsigned and signed bytes overflow here, as on x86 without VNNI.

    The weights of an int8 graph are signed. Where this is true ONNX Runtime is told to compute with unsigned ones:
    slower, and the vectors stay what they are elsewhere.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    cpuinfo = Path("/proc/cpuinfo")
    return not (cpuinfo.is_file() and re.search(r"\bavx(512)?_vnni\b", cpuinfo.read_text()))
