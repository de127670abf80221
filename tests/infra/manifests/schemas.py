"""Validate manifests by schemas: built-in kinds by those of Kubernetes, KubeRay's by its own, unknown keys refused."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
from jsonschema import Draft202012Validator

from tests.infra.manifests.render import Manifest

__all__ = ["KUBERAY", "has_kuberay_schemas", "schema_problems"]

KUBERAY = Path(__file__).parents[4] / "shared/kuberay"
_VERSION = "1.33"
_RAY_KINDS = ("RayCluster", "RayJob", "RayService", "RayCronJob")
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_RULE = {
    "type": "object",
    "properties": {
        "alert": {"type": "string", "pattern": "^LsrProd[A-Z][A-Za-z]+$"},
        "record": {"type": "string", "pattern": "^lsr_prod:[a-z0-9_]+:[a-z0-9_]+$"},
        "expr": {"type": "string"},
        "for": {"type": "string", "pattern": "^[0-9]+[smh]$"},
        "labels": {**_TEXTS, "required": ["severity"]},
        "annotations": {**_TEXTS, "required": ["summary", "description"]},
    },
    "required": ["expr"],
    "oneOf": [{"required": ["record"]}, {"required": ["alert", "for", "labels", "annotations"]}],
    "additionalProperties": False,
}


def _kind(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "properties": {
            "apiVersion": {"const": "monitoring.coreos.com/v1"},
            "kind": {},
            "metadata": {"type": "object"},
            "spec": spec,
        },
        "required": ["apiVersion", "spec"],
        "additionalProperties": False,
    }


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


_TEXT = {"type": "string", "minLength": 1}
# The operator of Prometheus: what the manifests use of its kinds.
_MONITORING = {
    "PrometheusRule": _kind(_object(groups=_list(_object(name=_TEXT, rules=_list(_RULE))))),
    "PodMonitor": _kind(
        _object(
            selector=_object(matchLabels=_TEXTS),
            podMetricsEndpoints=_list(
                _object(
                    port=_TEXT,
                    interval={"type": "string", "pattern": "^[0-9]+s$"},
                    relabelings=_list(_object(sourceLabels=_list(_TEXT), targetLabel=_TEXT)),
                )
            ),
        )
    ),
}


def has_kuberay_schemas() -> bool:
    """Return whether the schemas of KubeRay lie beside the project."""
    return KUBERAY.is_dir()


def schema_problems(manifest: Manifest) -> list[str]:
    """Return what the schemas refuse, one sentence each."""
    where = f"{manifest.get('kind')} {manifest.get('metadata', {}).get('name')}"
    if manifest.get("kind") in _RAY_KINDS:
        if manifest.get("apiVersion") != "ray.io/v1":
            return [f"{where}: apiVersion is {manifest.get('apiVersion')!r}, not ray.io/v1"]
        errors = _kuberay(manifest["kind"]).iter_errors(manifest)
        found = [f"{where}: {'.'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in errors]
        return found + [problem for pod in _pod_templates(manifest) for problem in _builtin(where, _as_pod(pod))]
    if manifest.get("kind") in _MONITORING:
        errors = Draft202012Validator(_MONITORING[manifest["kind"]]).iter_errors(manifest)
        return [f"{where}: {'.'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in errors]
    return _builtin(where, manifest)


def _builtin(where: str, manifest: Manifest) -> list[str]:
    try:
        kubernetes_validate.validate(manifest, _VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{where}: {'.'.join(map(str, error.path))}: {error.message[:200]}"]
    except (kubernetes_validate.SchemaNotFoundError, kubernetes_validate.InvalidSchemaError, KeyError) as error:
        return [f"{where}: there is no such kind: {error}"]
    return []


def _as_pod(template: Manifest) -> Manifest:
    metadata = {"name": "pod", **(template.get("metadata") or {})}
    rest = {name: value for name, value in template.items() if name != "metadata"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **rest}


def _pod_templates(value: Any) -> Iterator[Manifest]:
    """Yield the pod templates inside of a manifest of KubeRay."""
    if isinstance(value, list):
        for item in value:
            yield from _pod_templates(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in ("template", "submitterPodTemplate") and isinstance(item, dict):
                yield item
            else:
                yield from _pod_templates(item)


@cache
def _kuberay(kind: str) -> Draft202012Validator:
    versions = json.loads((KUBERAY / f"{kind}.schema.json").read_bytes())["versions"]
    spec = versions["v1"]
    schema: dict[str, Any] = spec.get("openAPIV3Schema", spec)
    return Draft202012Validator(_strict(schema))


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _strict(value) for name, value in schema.items()}
    if (
        isinstance(schema.get("properties"), dict)
        and "additionalProperties" not in schema
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        made["additionalProperties"] = False
    return made
