"""Metrics, alarms and dashboard against each other, the code and Prometheus' own tool."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.infra.manifests.metrics import documented, exported, metric_problems
from tests.infra.manifests.render import ROOT, Manifest, render

CASES: dict[str, dict[str, dict[str, str]]] = yaml.safe_load(Path(__file__).with_name("alarms.yaml").read_text())


@pytest.fixture(scope="module")
def monitoring() -> list[Manifest]:
    return render(ROOT / "base/monitoring")


def groups(monitoring: list[Manifest]) -> list[dict[str, Any]]:
    (rules,) = [one for one in monitoring if one["kind"] == "PrometheusRule"]
    return list(rules["spec"]["groups"])


def alarms(monitoring: list[Manifest]) -> set[str]:
    return {rule["alert"] for group in groups(monitoring) for rule in group["rules"] if "alert" in rule}


def promtool(*arguments: str) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed; Debian's package prometheus has it")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_table_and_code_have_the_same_metrics() -> None:
    assert documented() == exported()


def test_rules_and_dashboard_show_every_metric_and_no_other(monitoring: list[Manifest]) -> None:
    assert list(metric_problems(monitoring)) == []


def test_the_page_lists_the_alarms(monitoring: list[Manifest]) -> None:
    page = (ROOT.parents[1] / "docs/metrics.md").read_text()
    assert set(re.findall(r"^\| `(LsrProd\w+)` \|", page, re.MULTILINE)) == alarms(monitoring)


def test_every_alarm_has_cases(monitoring: list[Manifest]) -> None:
    assert set(CASES) == alarms(monitoring)
    assert all({"fires", "silent"} <= set(case) for case in CASES.values())


def test_every_alarm_fires_and_is_silent_where_it_should_be(monitoring: list[Manifest], tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups(monitoring)}))
    assert "SUCCESS" in promtool("check", "rules", str(tmp_path / "rules.yaml"))
    probe = 'count(ALERTS{{alertname="{}", alertstate="firing"}}) or vector(0)'
    tests = [
        {
            "interval": "1m",
            "name": f"{alarm} {name}",
            "input_series": [{"series": series, "values": values} for series, values in found.items()],
            "promql_expr_test": [
                {
                    "expr": probe.format(alarm),
                    "eval_time": "30m",
                    "exp_samples": [{"labels": "{}", "value": int(name.endswith("fires"))}],
                }
            ],
        }
        for alarm, case in CASES.items()
        for name, found in case.items()
    ]
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    assert "SUCCESS" in promtool("test", "rules", str(tmp_path / "tests.yaml"))
