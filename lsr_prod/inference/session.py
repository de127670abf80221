"""One graph in ONNX Runtime: choice of the execution provider, and calls through an I/O binding."""

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lsr_prod.errors import ArtifactError, ConfigError, EncoderRaisedError, MissingExtraError
from lsr_prod.logs import get_log

log = get_log(__name__)

Provider = Literal["auto", "cpu", "cuda", "tensorrt"]

_CPUINFO = Path("/proc/cpuinfo")
# In the order of `auto`: CUDA first, because TensorRT compiles an engine for every new shape.
_NAMES = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider", "cpu": "CPUExecutionProvider"}


def processor_has(*features: str) -> bool:
    """Return whether Linux lists one of these features of the processor; False on other systems."""
    return _CPUINFO.is_file() and not set(features).isdisjoint(_CPUINFO.read_text().split())


def load_onnxruntime() -> Any:
    """Import ONNX Runtime; its telemetry is off (``lsr_prod.telemetry``)."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "cpu") from error
    return onnxruntime


def choose_provider(wanted: Provider, available: Sequence[str]) -> str:
    """Return ONNX Runtime's name of the execution provider to use."""
    if wanted == "auto":
        return next(name for name in _NAMES.values() if name in available)
    if _NAMES[wanted] not in available:
        problem = f"{wanted} is not in this ONNX Runtime, which has {', '.join(available)}"
        remedy = "set auto or cpu, or install onnxruntime-gpu in place of onnxruntime"
        raise ConfigError("encode.provider", problem, remedy)
    return _NAMES[wanted]


class GraphSession:
    """A loaded graph. Safe to share between threads: every call has its own binding."""

    def __init__(self, path: Path, *, threads: int, provider: Provider = "auto") -> None:
        """Load ``path``."""
        ort = load_onnxruntime()
        self.provider = choose_provider(provider, ort.get_available_providers())
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Busy waiting for the next operator would take cores from other actors.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # Operators that TensorRT does not support run on CUDA, those that CUDA does not support on the CPU.
        order = (_NAMES["tensorrt"], _NAMES["cuda"], _NAMES["cpu"])
        if _saturates():
            options.add_session_config_entry("session.x64quantprecision", "1")
        providers = [name for name in order[order.index(self.provider) :] if name in ort.get_available_providers()]
        if self.provider != _NAMES["cpu"]:
            ort.preload_dlls()  # CUDA's libraries of the nvidia packages, which no search path names
        try:
            self._session: Any = ort.InferenceSession(path, options, providers=providers)
        except Exception as error:  # ONNX Runtime raises bare Exceptions
            raise ArtifactError(
                f"ONNX Runtime does not open {path} ({_line(error)}); export the model again"
            ) from error
        if self._session.get_providers()[0] != self.provider:  # ONNX Runtime falls back to the CPU without an error
            raise ConfigError("encode.provider", f"{self.provider} did not start", "see ONNX Runtime's log, or set cpu")
        self._device = "cpu" if self.provider == _NAMES["cpu"] else "cuda"
        self._value: Any = ort.OrtValue.ortvalue_from_numpy
        log.info("opened a graph", extra={"fields": {"provider": self.provider, "asked": provider, "threads": threads}})

    def run(
        self, feed: Mapping[str, np.typing.NDArray[np.int64]], outputs: Sequence[str]
    ) -> list[np.typing.NDArray[Any]]:
        """Run the graph and return the arrays ``outputs``."""
        binding = self._session.io_binding()
        try:
            for name, array in feed.items():
                binding.bind_ortvalue_input(name, self._value(array, self._device, 0))
            for name in outputs:
                binding.bind_output(name, self._device)
            self._session.run_with_iobinding(binding)
            arrays: list[np.typing.NDArray[Any]] = binding.copy_outputs_to_cpu()
        except Exception as error:  # ONNX Runtime raises bare Exceptions
            raise EncoderRaisedError(f"ONNX Runtime: {_line(error)}") from error
        return arrays


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def _saturates() -> bool:
    """Return whether sums of products of unsigned and signed bytes overflow on this CPU: x86 without VNNI.

    The weights of an int8 graph are signed. On such a CPU, ONNX Runtime computes with unsigned weights instead: slower,
    but with the same vectors as elsewhere.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    return not processor_has("avx_vnni", "avx512_vnni")
