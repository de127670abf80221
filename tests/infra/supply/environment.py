"""The environment of pip-audit and cyclonedx-bom."""

import pytest

from infra.supply.locks import ROOT

PYTHON = ROOT / ".venv-audit" / "bin" / "python"

needs_tools = pytest.mark.skipif(not PYTHON.exists(), reason="no environment of the audit: make .venv-audit/.ready")
