"""Checks of what Prometheus and Grafana read. Each yields one sentence per problem."""

import json
from collections.abc import Iterator

from tests.infra.manifests.pods import pod_templates
from tests.infra.manifests.render import Manifest

__all__ = ["monitoring"]

_TARGETS = ("ray_io_cluster", "component")
_POD_LABELS = ("ray_io_cluster", "app_kubernetes_io_component")


def monitoring(manifests: list[Manifest]) -> Iterator[str]:
    """Check that the monitored pods exist and open the port, and that the dashboard can be read."""
    pods = pod_templates(manifests)
    for monitor in (one["spec"] for one in manifests if one["kind"] == "PodMonitor"):
        chosen = [pod for pod in pods if monitor["selector"]["matchLabels"].items() <= pod.labels.items()]
        for endpoint in monitor["podMetricsEndpoints"]:
            for pod in chosen:
                ports = {port["name"] for port in pod.container.get("ports", [])}
                if pod.role in ("head", "worker", "watch") and endpoint["port"] not in ports:
                    yield f"{pod.where}: it has no port {endpoint['port']}"
            for rule in endpoint["relabelings"]:
                labels = {f"__meta_kubernetes_pod_label_{name}" for name in _POD_LABELS}
                if not set(rule["sourceLabels"]) <= labels or rule["targetLabel"] not in (
                    "ray_io_cluster",
                    "component",
                ):
                    yield f"PodMonitor: {rule} reads or writes an unknown label"
        if not {"head", "worker", "watch"} <= {pod.role for pod in chosen}:
            yield "PodMonitor: it selects no pod of a head, of workers or of watch"
    for pod in (pod for pod in pods if pod.role == "watch"):
        expected = "lsr-prod watch --config /etc/lsr-prod/deployment.yaml --host $(POD_IP)"
        if " ".join(pod.container["command"]) != expected or pod.container["env"][0]["name"] != "POD_IP":
            yield f"{pod.where}: the command is not {expected}"
        if pod.mounted().get("/etc/lsr-prod", {}).get("configMap", {}).get("name") != "deployment":
            yield f"{pod.where}: the deployment is not at /etc/lsr-prod"
        ports = {port["name"]: port["containerPort"] for port in pod.container["ports"]}
        if ports != {"metrics": 9469} or pod.container["readinessProbe"]["httpGet"] != {
            "path": "/metrics",
            "port": "metrics",
        }:
            yield f"{pod.where}: it is not read at port 9469, path /metrics"
    for dashboard in (one for one in manifests if "dashboard" in one["metadata"]["name"]):
        panels = json.loads(dashboard["data"]["dashboard.json"])["panels"]
        if len({panel["id"] for panel in panels}) != len(panels):
            yield "dashboard: two panels have the same id"
