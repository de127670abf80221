"""Checks of Ray clusters, jobs, the service and the night against the code. Each yields one sentence per problem."""

import importlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml
from ray.serve.schema import ServeDeploySchema

from lsr_prod.config import Deployment, load_deployment
from lsr_prod.errors import ConfigError
from lsr_prod.jobs.command import load
from tests.infra.manifests.pod_checks import NEED_TORCH, RIGHTS
from tests.infra.manifests.pods import pod_templates, ray_clusters
from tests.infra.manifests.render import Manifest

__all__ = ["deployments", "night", "ray_settings", "service"]

_REPOSITORY = Path(__file__).parents[3]


def ray_settings(manifests: list[Manifest]) -> Iterator[str]:
    lock = (_REPOSITORY / "requirements/jobs.txt").read_text()
    version = re.search(r"^ray==(\S+)", lock, re.MULTILINE)
    assert version is not None
    for where, cluster in ray_clusters(manifests):
        if cluster["rayVersion"] != version[1]:
            yield f"{where}: rayVersion is {cluster['rayVersion']}, the image has {version[1]}"
        if cluster["authOptions"] != {"mode": "token", "secretName": "ray-token"}:
            yield f"{where}: Ray does not ask for the token of the secret ray-token"
        head = cluster["headGroupSpec"]["rayStartParams"]
        if head != {"num-cpus": "0", "dashboard-host": "0.0.0.0"}:
            yield f"{where}: the head takes work, or its dashboard does not listen: {head}"
        groups = cluster["workerGroupSpecs"]
        grows = any(group["minReplicas"] < group["maxReplicas"] for group in groups)
        scaler = cluster.get("autoscalerOptions", {})
        if grows and not (cluster.get("enableInTreeAutoscaling") is True and scaler.get("version") == "v2"):
            yield f"{where}: groups grow, but autoscaler v2 is off"
        if grows and scaler.get("securityContext") != RIGHTS:
            yield f"{where}: the autoscaler has other rights than {RIGHTS}"
        for group in groups:
            if not group["minReplicas"] <= group["replicas"] <= group["maxReplicas"] or group["maxReplicas"] < 1:
                yield f"{where}: replicas of group {group['groupName']} are outside of their limits"
            market = group["template"]["spec"].get("nodeSelector", {}).get("lsr-prod/market")
            if market is not None and group.get("labels", {}).get("market") != market:
                yield f"{where}: group {group['groupName']} runs on {market} nodes, and its label says otherwise"


def deployments(manifests: list[Manifest]) -> Iterator[str]:
    (config,) = [one for one in manifests if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "deployment"]
    for manifest in manifests:
        if manifest["kind"] == "RayJob":
            name, spec = f"RayJob {manifest['metadata']['name']}", manifest["spec"]
            program, *words, option, path = spec["entrypoint"].split()
            if (program, option) != ("lsr-prod", "--config"):
                yield f"{name}: the entry point {spec['entrypoint']} is not lsr-prod COMMAND --config FILE"
            yield from _mounts(name, manifest, path)
            yield from _settings(name, " ".join(words), config["data"][Path(path).name])
            if not spec["suspend"] or spec["backoffLimit"] or not spec["shutdownAfterJobFinishes"]:
                yield f"{name}: a template is suspended, is not repeated by the operator, and leaves no cluster"


def _mounts(name: str, manifest: Manifest, path: str) -> Iterator[str]:
    for pod in pod_templates([manifest]):
        if pod.role in ("head", "worker"):
            volume = pod.mounted().get(str(Path(path).parent), {})
            if volume.get("configMap", {}).get("name") != "deployment":
                yield f"{name}: {path} is not mounted in {pod.where}"


def _settings(name: str, job: str, text: str) -> Iterator[str]:
    try:
        needs = load(job)
    except KeyError:
        yield f"{name}: there is no job {job}"
        return
    sections = set(yaml.safe_load(text) or {})
    if job in NEED_TORCH and not set(needs.needs) <= sections:
        return  # a template: its section is written before its first start
    try:
        _load(text, job, needs.needs, needs.optional)
    except ConfigError as error:
        yield f"{name}: {error}"


def _load(text: str, job: str, needs: tuple[str, ...], optional: tuple[str, ...]) -> Deployment:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deployment.yaml"
        path.write_text(text)
        return load_deployment(["--config", str(path)], job=job, description="", needs=needs, optional=optional)


def service(manifests: list[Manifest]) -> Iterator[str]:
    for service in (one for one in manifests if one["kind"] == "RayService"):
        config = ServeDeploySchema.model_validate(yaml.safe_load(service["spec"]["serveConfigV2"]))
        (application,) = config.applications
        module, _, name = str(application.import_path).partition(":")
        if not callable(getattr(importlib.import_module(module), name, None)):
            yield f"RayService: {application.import_path} does not exist"
        path = str(application.args["config"])
        yield from _mounts("RayService", service, path)
        (config_map,) = [one for one in manifests if one["metadata"]["name"] == "deployment"]
        settings = _load(config_map["data"][Path(path).name], "serve", ("serve",), ()).serve
        assert settings is not None
        ports = {one["name"]: one["containerPort"] for one in _group(service)["ports"]}
        if not settings.http_port == config.http_options.port == ports.get("serve"):
            yield f"RayService: serve.http_port {settings.http_port} is not the port that is opened"
        reserved = settings.reserved_cpus
        cores = sum(_cores(group) for group in service["spec"]["rayClusterConfig"]["workerGroupSpecs"])
        if reserved > cores:
            yield f"RayService: the replicas reserve {reserved} cores, the pods have {cores}"
        if not service["spec"]["excludeHeadPodFromServeSvc"]:
            yield "RayService: requests are sent to the head"


def _group(service: Manifest) -> Manifest:
    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    return dict(container)


def _cores(group: Manifest) -> float:
    (container,) = group["template"]["spec"]["containers"]
    return float(container["resources"]["requests"]["cpu"]) * float(group["replicas"])


def night(manifests: list[Manifest]) -> Iterator[str]:
    jobs = {one["metadata"]["name"]: one["spec"] for one in manifests if one["kind"] == "RayJob"}
    for night in (one["spec"] for one in manifests if one["kind"] == "CronJob"):
        if night["concurrencyPolicy"] != "Forbid":
            yield "CronJob night: two nights may run at once"
        if not re.fullmatch(r"\d+ \d+ \* \* \*", night["schedule"]):
            yield f"CronJob night: it does not run once every night: {night['schedule']}"
        job = night["jobTemplate"]["spec"]
        if job["activeDeadlineSeconds"] <= jobs["reindex"]["activeDeadlineSeconds"]:
            yield "CronJob night: it ends before the RayJob that it follows"
        if job["template"]["spec"]["automountServiceAccountToken"] is not True:
            yield "CronJob night: start_job.py has no token of Kubernetes"
