"""An adapter whose package is not installed says in one sentence which extra installs it."""

import sys
from importlib import import_module

import pytest

from lsr_prod.errors import MissingExtraError


@pytest.mark.parametrize(
    ("adapter", "package", "extra"),
    [
        ("haystack", "haystack", "haystack"),
        ("ir_datasets", "ir_datasets", "ir-datasets"),
        ("langchain", "langchain_core", "langchain"),
        ("llama_index", "llama_index", "llama-index"),
        ("mteb", "mteb", "mteb"),
        ("mteb_model", "mteb", "mteb"),
        ("opentelemetry", "opentelemetry", "opentelemetry"),
        ("pyterrier", "pyterrier", "pyterrier"),
    ],
)
def test_missing_package_names_its_extra(
    adapter: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("lsr_prod.integrations.", f"{package}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package} is not installed; .*lsr_prod\[{extra}\]"):
        import_module(f"lsr_prod.integrations.{adapter}")


def test_missing_sdk_of_agents_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from lsr_prod.jobs.serving import mcp

    monkeypatch.delitem(sys.modules, "lsr_prod_contrib.agents.server", raising=False)
    for package in ("anyio", "mcp", "uvicorn"):
        monkeypatch.setitem(sys.modules, package, None)
        assert mcp.run(["index"]) == 2
