"""Render an overlay, with the few features of kustomize that the manifests use, or with kubectl."""

import copy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

__all__ = ["ROOT", "Manifest", "render", "render_with_kubectl"]

Manifest = dict[str, Any]
ROOT = Path(__file__).parents[3] / "infra/kubernetes"
_KNOWN = {"apiVersion", "kind", "namespace", "resources", "patches", "configMapGenerator", "images"}
_CLUSTER_SCOPED = {"Namespace"}


def render(folder: Path) -> list[Manifest]:
    """Return the resources of a folder with a ``kustomization.yaml``.

    Raises:
        ValueError: it uses a feature of kustomize that is not implemented here.
    """
    settings = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := set(settings) - _KNOWN:
        raise ValueError(f"{folder}: {sorted(unknown)} is not implemented")
    resources: list[Manifest] = []
    for entry in settings.get("resources", []):
        path = folder / entry
        resources += render(path.resolve()) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    resources += [_config_map(folder, one) for one in settings.get("configMapGenerator", [])]
    for patch in settings.get("patches", []):
        _patch(resources, yaml.safe_load((folder / patch["path"]).read_text()), patch["target"])
    if "namespace" in settings:
        for resource in resources:
            _set_namespace(resource, settings["namespace"])
    for image in settings.get("images", []):
        for resource in resources:
            _set_image(resource, image)
    return resources


def render_with_kubectl(folder: Path) -> list[Manifest] | None:
    """Return what ``kubectl kustomize`` makes of a folder; None where kubectl is not installed.

    Raises:
        ValueError: kubectl refuses the folder; the message is its own.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return None
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise ValueError(done.stderr)
    return list(yaml.safe_load_all(done.stdout))


def _config_map(folder: Path, settings: Manifest) -> Manifest:
    options = settings["options"]
    if not options["disableNameSuffixHash"]:
        raise ValueError(f"{folder}: a suffix of ConfigMap {settings['name']} is not implemented")
    metadata = {"name": settings["name"], **({"labels": options["labels"]} if "labels" in options else {})}
    data = {Path(name).name: (folder / name).read_text() for name in settings["files"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _patch(resources: list[Manifest], operations: list[Manifest], target: dict[str, str]) -> None:
    found = [resource for resource in resources if _is_target(resource, target)]
    if not found:
        raise ValueError(f"a patch has no target {target}")
    for resource in found:
        for operation in operations:
            *parents, last = operation["path"].strip("/").replace("~1", "/").split("/")
            place: Any = resource
            for name in parents:
                place = place[int(name) if isinstance(place, list) else name]
            if operation["op"] not in ("add", "replace") or isinstance(place, list):
                raise ValueError(f"the operation {operation['op']} on {operation['path']} is not implemented")
            place[last] = copy.deepcopy(operation["value"])


def _is_target(resource: Manifest, target: dict[str, str]) -> bool:
    return resource["kind"] == target["kind"] and target.get("name") in (None, resource["metadata"]["name"])


def _set_namespace(resource: Manifest, namespace: str) -> None:
    if resource["kind"] in _CLUSTER_SCOPED:
        resource["metadata"]["name"] = namespace
        return
    resource["metadata"]["namespace"] = namespace
    for subject in resource.get("subjects", []):
        subject["namespace"] = namespace


def _set_image(value: Any, image: dict[str, str]) -> None:
    """Replace the image of every container of that name, at any depth."""
    if isinstance(value, list):
        for item in value:
            _set_image(item, image)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in ("containers", "initContainers"):
                for container in item:
                    if container["image"].partition("@")[0].partition(":")[0] == image["name"]:
                        suffix = f"@{image['digest']}" if "digest" in image else f":{image['newTag']}"
                        container["image"] = image.get("newName", image["name"]) + suffix
            else:
                _set_image(item, image)
