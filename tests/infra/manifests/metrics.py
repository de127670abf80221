"""What the code exports as metrics, and what rules, dashboard and documentation name."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.infra.manifests.render import Manifest

__all__ = ["documented", "documented_of_others", "exported", "metric_problems", "used"]

_REPOSITORY = Path(__file__).parents[3]
_TABLE = (_REPOSITORY / "docs/metrics.md").read_text()
_SUFFIX = re.compile(r"_(bucket|sum|count)$")
_BY_EITHER = re.compile(r"__name__=~\"\(ray_\)\?(\w+)\"")


@cache
def exported() -> frozenset[str]:
    """Return the metrics that the code constructs, by their exported names; histograms without suffix."""
    return frozenset(name for path in _REPOSITORY.glob("lsr_prod*/**/*.py") for name in _constructed(path))


def _constructed(path: Path) -> Iterator[str]:
    text = path.read_text()
    if "lsr_prod_" not in text:
        return
    prefix = "ray_" if "from ray.util.metrics import" in text else ""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            kind = node.func.id if isinstance(node.func, ast.Name) else ""
            if kind in ("Counter", "Gauge", "Histogram", "_gauge", "_one_of"):
                yield f"{prefix}{node.args[0].value}{'_total' if kind == 'Counter' else ''}"


def documented() -> frozenset[str]:
    """Return the metrics of the table in docs/metrics.md."""
    return frozenset(re.findall(r"^\| `((?:ray_)?lsr_prod_\w+)` \| (?:counter|gauge|histogram)", _TABLE, re.MULTILINE))


def documented_of_others() -> frozenset[str]:
    """Return the metrics of other programs that docs/metrics.md lists."""
    lines = [line for line in _TABLE.splitlines() if line.startswith(("| `kube_", "| `ray_node_"))]
    return frozenset(name for line in lines for name in re.findall(r"`(\w+)`", line))


def used(manifests: list[Manifest]) -> frozenset[str]:
    """Return the metrics in the expressions of rules and dashboards, without those that rules record."""
    return frozenset(name for expression in _expressions(manifests) for name in _names(expression))


def metric_problems(manifests: list[Manifest]) -> Iterator[str]:
    """Yield a sentence for each metric that does not exist, and for each that nothing shows."""
    if not any(manifest["kind"] == "PrometheusRule" for manifest in manifests):
        return
    known, found = documented() | documented_of_others(), used(manifests)
    for name in sorted(found - known):
        yield f"rules or dashboard: there is no metric {name}"
    for name in sorted(known - found):
        yield f"rules and dashboard: nothing shows {name}"
    recorded = {rule["record"] for rule in _rules(manifests) if "record" in rule}
    for expression in _expressions(manifests):
        for name in re.findall(r"\blsr_prod:[\w:]+", expression):
            if name not in recorded:
                yield f"rules or dashboard: no rule records {name}"


def _names(expression: str) -> Iterator[str]:
    for name in _BY_EITHER.findall(expression):
        yield from (_SUFFIX.sub("", name), f"ray_{_SUFFIX.sub('', name)}")
    plain = re.sub(r'"[^"]*"', '""', expression)
    plain = re.sub(r"\b(?:by|on|ignoring|group_left|group_right) ?\([^)]*\)", "", plain)
    plain = re.sub(r"\blsr_prod:[\w:]+", "", plain)
    yield from (_SUFFIX.sub("", name) for name in re.findall(r"\b[a-z]+_[a-z0-9_]+\b", plain) if _is_metric(name))


def _is_metric(name: str) -> bool:
    return name not in ("histogram_quantile", "job_name")


def _rules(manifests: list[Manifest]) -> list[dict[str, Any]]:
    groups = [
        one for manifest in manifests if manifest["kind"] == "PrometheusRule" for one in manifest["spec"]["groups"]
    ]
    return [rule for group in groups for rule in group["rules"]]


def _expressions(manifests: list[Manifest]) -> list[str]:
    found = [rule["expr"] for rule in _rules(manifests)]
    for manifest in manifests:
        for name, text in manifest.get("data", {}).items() if manifest["kind"] == "ConfigMap" else ():
            if name.endswith(".json"):
                found += [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    return found
