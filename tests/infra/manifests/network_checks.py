"""Checks of labels, selectors and the policies of the network. Each yields one sentence per problem."""

from collections.abc import Iterator
from typing import Any

from tests.infra.manifests.pods import PodTemplate, pod_templates
from tests.infra.manifests.render import Manifest

__all__ = ["selectors"]

_PART_OF = ("app.kubernetes.io/part-of", "lsr-prod")


def selectors(manifests: list[Manifest]) -> Iterator[str]:
    pods = pod_templates(manifests)
    for pod in pods:
        if pod.labels.get(_PART_OF[0]) != _PART_OF[1]:
            yield f"{pod.where}: no policy of the network allows its traffic: the label {'='.join(_PART_OF)} is missing"
    names = {_one_namespace(one) for one in manifests}
    if len(names) != 1:
        yield f"the manifests are in several namespaces: {sorted(map(str, names))}"
    for manifest in manifests:
        spec, name = manifest.get("spec", {}), f"{manifest['kind']} {manifest['metadata']['name']}"
        key = {"NetworkPolicy": "podSelector", "PodDisruptionBudget": "selector"}.get(manifest["kind"])
        if key is None:
            continue
        wanted = (spec[key] or {}).get("matchLabels", {})
        chosen = [pod for pod in pods if wanted.items() <= pod.labels.items()]
        if not chosen or (manifest["kind"] == "PodDisruptionBudget" and {pod.role for pod in chosen} != {"worker"}):
            yield f"{name}: it selects {'no pod' if not chosen else 'other pods than workers'}"
        if manifest["kind"] == "PodDisruptionBudget" and not isinstance(spec.get("minAvailable"), int):
            yield f"{name}: pods of an owner without the subresource scale need minAvailable, as a number"
        yield from _peers(name, spec, pods, chosen)
    yield from _policies({one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == "NetworkPolicy"})


def _one_namespace(manifest: Manifest) -> str | None:
    metadata = manifest["metadata"]
    name: str | None = metadata["name"] if manifest["kind"] == "Namespace" else metadata.get("namespace")
    return name


def _peers(name: str, spec: Manifest, pods: list[PodTemplate], chosen: list[PodTemplate]) -> Iterator[str]:
    """Check the other side of a policy's rules, where it is in this namespace, and the ports of this side."""
    for rule in [*spec.get("ingress", []), *spec.get("egress", [])]:
        for peer in [*rule.get("from", []), *rule.get("to", [])]:
            wanted = peer.get("podSelector", {}).get("matchLabels", {})
            is_here = "namespaceSelector" not in peer and "podSelector" in peer
            if is_here and not any(wanted.items() <= pod.labels.items() for pod in pods):
                yield f"{name}: a rule names pods that do not exist: {wanted}"
    opened = {port["containerPort"] for pod in chosen for port in pod.container.get("ports", [])} | {52365}
    for rule in spec.get("ingress", []):
        for port in rule.get("ports", []):
            if port["port"] not in opened:
                yield f"{name}: no selected pod opens port {port['port']}"


def _policies(policies: dict[str, Any]) -> Iterator[str]:
    """Check that the names resolve, the store is reached, and everything else is denied."""
    if policies["deny-all"] != {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}:
        yield "NetworkPolicy deny-all does not deny everything to all pods"
    ports = {(one["protocol"], one["port"]) for rule in policies["dns"]["egress"] for one in rule["ports"]}
    if ports != {("UDP", 53), ("TCP", 53)} or policies["dns"]["podSelector"]:
        yield "NetworkPolicy dns does not let all pods resolve names"
    (names,) = policies["dns"]["egress"]
    expected = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    if names["to"] != [expected]:
        yield "NetworkPolicy dns does not name the servers of names"
    if {one["port"] for rule in policies["https"]["egress"] for one in rule["ports"]} != {443, 6443}:
        yield "NetworkPolicy https does not reach the object store and the API of Kubernetes"
    for name, spec in policies.items():
        used = {kind for kind, key in (("Ingress", "ingress"), ("Egress", "egress")) if key in spec}
        if name != "deny-all" and used != set(spec["policyTypes"]):
            yield f"NetworkPolicy {name}: policyTypes differ from its rules"
    (label,) = policies["operator"]["ingress"][0]["from"][0]["podSelector"]["matchExpressions"]
    # The operator's label by its kustomization, and by its chart of Helm.
    if label != {"key": "app.kubernetes.io/name", "operator": "In", "values": ["kuberay", "kuberay-operator"]}:
        yield "NetworkPolicy operator does not admit the operator of KubeRay"
