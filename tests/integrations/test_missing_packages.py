"""An adapter whose package is not installed says in one sentence which extra installs it."""

import sys
from importlib import import_module

import pytest

from lsr_prod.errors import MissingExtraError


@pytest.mark.parametrize(
    ("adapter", "package", "extra"),
    [
        ("ir_datasets", "ir_datasets", "ir-datasets"),
        ("mteb", "mteb", "mteb"),
        ("mteb_model", "mteb", "mteb"),
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
