"""Pods that the manifests of an overlay make, wherever their templates stand."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.infra.manifests.render import Manifest

__all__ = ["PodTemplate", "memory_bytes", "pod_templates", "ray_clusters"]

_UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


@dataclass(frozen=True)
class PodTemplate:
    """A pod template.

    Attributes:
        where: manifest and place, for messages.
        role: head, worker, submitter, night or watch.
        labels: of its pods.
        spec: of its pods.
    """

    where: str
    role: str
    labels: dict[str, str]
    spec: Manifest

    @property
    def container(self) -> Manifest:
        """The only container."""
        (container,) = self.spec["containers"]
        return dict(container)

    def mounted(self) -> dict[str, Manifest]:
        """Volumes by the path at which the container has them."""
        volumes = {volume["name"]: volume for volume in self.spec.get("volumes", [])}
        return {mount["mountPath"]: volumes.get(mount["name"], {}) for mount in self.container.get("volumeMounts", [])}


def ray_clusters(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Yield place and specification of every Ray cluster."""
    for manifest in manifests:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        path = {"RayCluster": "", "RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}.get(manifest["kind"])
        if path is not None:
            yield name, manifest["spec"].get(path, {}) if path else manifest["spec"]


def pod_templates(manifests: list[Manifest]) -> list[PodTemplate]:
    """Return all pod templates of an overlay."""
    found = []
    for where, cluster in ray_clusters(manifests):
        found.append(_template(f"{where} head", "head", cluster["headGroupSpec"]["template"]))
        found += [
            _template(f"{where} group {group['groupName']}", "worker", group["template"])
            for group in cluster.get("workerGroupSpecs", [])
        ]
    for manifest in manifests:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        spec: Any = manifest.get("spec", {})
        if manifest["kind"] == "RayJob":
            found.append(_template(f"{name} submitter", "submitter", spec["submitterPodTemplate"]))
        elif manifest["kind"] == "CronJob":
            found.append(_template(name, "night", spec["jobTemplate"]["spec"]["template"]))
        elif manifest["kind"] == "Deployment":
            found.append(_template(name, "watch", spec["template"]))
    return found


def _template(where: str, role: str, template: Manifest) -> PodTemplate:
    return PodTemplate(where, role, (template.get("metadata") or {}).get("labels") or {}, template["spec"])


def memory_bytes(quantity: str) -> int:
    """Return the bytes of a quantity such as ``2Gi``."""
    return int(quantity[:-2]) * _UNITS[quantity[-2:]]
