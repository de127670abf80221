"""The extras: optional dependencies of the wheel, and modules of ``lsr_prod_contrib``."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from lsr_prod.errors import MissingExtraError

_EXTRAS = {
    "cpu": {"onnxruntime"},
    "haystack": {"haystack"},
    "iceberg": {"pyiceberg"},
    "ir-datasets": {"ir_datasets"},
    "jobs": {"deltalake", "ir_measures", "obstore", "pydantic", "pydantic_settings", "ray", "rich", "yaml"},
    "langchain": {"langchain_core"},
    "llama-index": {"llama_index"},
    "mcp": {"anyio", "mcp", "uvicorn"},
    "mteb": {"mteb"},
    "opentelemetry": {"opentelemetry"},
    "pages": {"jinja2", "markupsafe", "vl_convert"},
    "pyterrier": {"pyterrier"},
    "train": {"onnx", "onnxscript", "peft", "psutil", "safetensors", "torch", "transformers"},
    "wandb": {"wandb"},
}


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError:
    """Return the error that names the extra to install; any other missing module is a bug and is raised again."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in _EXTRAS.items():
        if module in modules:
            return MissingExtraError(module, extra)
    raise error


def contrib(module: str) -> Any:
    """Import a module of ``lsr_prod_contrib``. It is in the same distribution, but is loaded only by what uses it."""
    return import_module(f"lsr_prod_contrib.{module}")


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose public names are imported on first use.

    Args:
        package: name of the package.
        homes: module of each name.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as error:
            raise missing_extra(error) from error

    return find
