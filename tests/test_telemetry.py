"""Reports of dependencies are off by default, before any of them is imported; an explicit value is respected."""

import ast
import os
import subprocess
import sys
from pathlib import Path

from lsr_prod.telemetry import turn_off

PACKAGE = Path(__file__).parents[1] / "lsr_prod"
NAMES = {
    "ORT_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_ERROR_REPORTING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HAYSTACK_TELEMETRY_ENABLED": "false",
}
_IMPORT = """
import os, sys
import lsr_prod
assert not {"onnxruntime", "ray", "huggingface_hub", "wandb", "mlflow", "numpy"} & set(sys.modules)
print([os.environ.get(name) for name in sys.argv[1:]])
"""


def in_a_process(script: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | variables
    return subprocess.run(
        [sys.executable, "-c", script, *NAMES], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_import_of_the_package_turns_reports_off_and_imports_nothing_else() -> None:
    done = in_a_process(_IMPORT)
    assert done.stdout == f"{list(NAMES.values())}\n", done.stderr


def test_report_that_the_user_turns_on_stays_on() -> None:
    environment = {"ORT_DISABLE_TELEMETRY": "0", "RAY_USAGE_STATS_ENABLED": "1"}
    turn_off(environment)
    assert environment == {**NAMES, "ORT_DISABLE_TELEMETRY": "0", "RAY_USAGE_STATS_ENABLED": "1"}


def test_runtime_that_was_imported_before_is_warned_about() -> None:
    script = "import sys, types; sys.modules['onnxruntime'] = types.ModuleType('onnxruntime'); import lsr_prod"
    assert "set ORT_DISABLE_TELEMETRY=1" in in_a_process(script).stderr
    assert in_a_process(script, ORT_DISABLE_TELEMETRY="0").stderr == ""


def test_onnxruntime_is_imported_in_one_place() -> None:
    found = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.parent.glob("lsr_prod*/**/*.py")
        if "onnxruntime" in (source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import) and "onnxruntime" in {name.name.partition(".")[0] for name in node.names}
    }
    assert found == {"lsr_prod/inference/session.py"}


def test_documentation_says_how_each_report_is_turned_on() -> None:
    page = (PACKAGE.parent / "docs" / "security.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if name not in page] == []
