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
# Kinds of the operators of Prometheus and Grafana; tests of the rules and the dashboard read them.
_MONITORING = ("monitoring.coreos.com/v1",)


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
    if manifest.get("apiVersion") in _MONITORING:
        return []
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
