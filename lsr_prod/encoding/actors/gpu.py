"""Check that the ONNX Runtime of GPU nodes can use their GPUs.

``provider: auto`` takes the first provider that is available. On a node with a GPU and a runtime for CPUs, that would
be the CPU, while the actor reserves the GPU: the job would be many times slower, without a message.
"""

import socket
from collections.abc import Sequence

from lsr_prod.errors import ConfigError
from lsr_prod.inference.session import Provider, load_onnxruntime

_WANTED: dict[Provider, tuple[str, ...]] = {
    "auto": ("CUDAExecutionProvider", "TensorrtExecutionProvider"),
    "cuda": ("CUDAExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider",),
}


def check_gpu_nodes(provider: Provider, nodes: Sequence[str]) -> None:
    """Ask each node for the providers of its ONNX Runtime; needs a connection to Ray."""
    import ray

    from lsr_prod.cluster.errors import worker_errors
    from lsr_prod.cluster.tasks import Needs, remote

    with worker_errors("the check of ONNX Runtime on GPU nodes"):
        ray.get([remote(require_gpu_runtime, Needs(cpus=0, node=node))(provider) for node in sorted(set(nodes))])


def require_gpu_runtime(provider: Provider, available: Sequence[str] | None = None) -> None:
    """Refuse the ONNX Runtime of this node if it has no provider for GPUs."""
    found = _installed() if available is None else available
    if not set(_WANTED[provider]).isdisjoint(found):
        return
    raise ConfigError(
        "encode.provider",
        f"{provider}: node {_address()} has a GPU, but its ONNX Runtime has only {', '.join(found)}",
        "install onnxruntime-gpu in place of onnxruntime there, or set it to cpu",
    )


def _installed() -> Sequence[str]:
    providers: Sequence[str] = load_onnxruntime().get_available_providers()
    return providers


def _address() -> str:
    """Return the address by which Ray names this node, or the name of the machine outside of Ray."""
    import ray

    if not ray.is_initialized():
        return socket.gethostname()
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
