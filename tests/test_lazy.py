"""A lazy module stays unloaded while pytest collects the file that names it."""

import sys
from pathlib import Path

import pytest

from tests.lazy import LazyModule


def test_module_is_imported_when_its_first_public_name_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_late.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = LazyModule("imported_late")
    for name in ("__test__", "_mock_name", "_pytestfixturefunction"):
        assert not hasattr(module, name)
    assert "imported_late" not in sys.modules
    assert module.answer == 42
    del sys.modules["imported_late"]
