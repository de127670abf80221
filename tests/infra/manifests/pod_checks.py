"""Checks of pods: images, rights, volumes, accounts, commands. Each yields one sentence per problem."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.infra.manifests.pods import PodTemplate, memory_bytes, pod_templates
from tests.infra.manifests.render import Manifest

__all__ = ["NEED_TORCH", "RIGHTS", "accounts", "commands", "images", "security", "volumes"]

RIGHTS = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
NEED_TORCH = {"train", "mine", "score", "export", "model"}
_IMAGES = {"lsr-prod/jobs", "lsr-prod/cuda"}
_SECRETS = {"ray-token", "object-store"}  # made by hand: docs/deploy.md
_PROGRAMS = {"python", "ray", "lsr-prod", "sleep", "drain", "healthcheck"}


def images(manifests: list[Manifest]) -> Iterator[str]:
    for pod in pod_templates(manifests):
        name, _, tag = pod.container["image"].partition("@" if "@" in pod.container["image"] else ":")
        if name not in _IMAGES or not tag:
            yield f"{pod.where}: {pod.container['image']} is no image of docs/image.md with a tag or digest"
    for manifest in manifests:
        if manifest["kind"] == "RayJob" and manifest["spec"]["entrypoint"].split()[1] in NEED_TORCH:
            pods = [pod for pod in pod_templates([manifest]) if pod.role != "submitter"]
            if not all(pod.container["image"].startswith("lsr-prod/cuda") for pod in pods):
                yield f"RayJob {manifest['metadata']['name']} needs torch; give it lsr-prod/cuda"


def security(manifests: list[Manifest]) -> Iterator[str]:
    for pod in pod_templates(manifests):
        context, container = pod.spec["securityContext"], pod.container["securityContext"]
        expected = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
        if any(context.get(name) != value for name, value in expected.items()):
            yield f"{pod.where}: the pod does not run as user 10001 with the default seccomp profile"
        if container != RIGHTS:
            yield f"{pod.where}: the container has other rights than {RIGHTS}"
        resources = pod.container["resources"]
        if not {"cpu", "memory"} <= set(resources["requests"]) or "memory" not in resources["limits"]:
            yield f"{pod.where}: requests of cpu and memory, or a limit of memory, are missing"
        if memory_bytes(resources["requests"]["memory"]) > memory_bytes(resources["limits"]["memory"]):
            yield f"{pod.where}: it requests more memory than its limit"


def volumes(manifests: list[Manifest]) -> Iterator[str]:
    maps = {one["metadata"]["name"]: set(one["data"]) for one in manifests if one["kind"] == "ConfigMap"}
    for pod in pod_templates(manifests):
        mounted = pod.mounted()
        if not all("sizeLimit" in volume.get("emptyDir", {"sizeLimit": ""}) for volume in mounted.values()):
            yield f"{pod.where}: a scratch volume has no sizeLimit"
        if pod.role in ("submitter", "watch") and "emptyDir" not in mounted.get("/tmp", {}):
            yield f"{pod.where}: /tmp is not writable"
        if not all(mounted.values()) or len(mounted) != len(pod.spec.get("volumes", [])):
            yield f"{pod.where}: volumes and the places where they are mounted differ"
        for volume in mounted.values():
            if "configMap" in volume and volume["configMap"]["name"] not in maps:
                yield f"{pod.where}: there is no ConfigMap {volume['configMap']['name']}"
        if pod.role in ("head", "worker"):
            variables = {one["name"]: one.get("value") for one in pod.container["env"]}
            for path in ("/tmp", "/dev/shm", variables.get("LSR_PROD_CACHE")):
                if "emptyDir" not in mounted.get(str(path), {}):
                    yield f"{pod.where}: {path} is not writable"
            if mounted.get("/etc/lsr-prod", {}).get("configMap", {}).get("name") != "deployment":
                yield f"{pod.where}: the deployment is not at /etc/lsr-prod"
            shm = mounted.get("/dev/shm", {}).get("emptyDir", {})
            memory = memory_bytes(pod.container["resources"]["limits"]["memory"])
            if shm.get("medium") != "Memory" or memory_bytes(shm["sizeLimit"]) * 2 > memory:
                yield f"{pod.where}: /dev/shm is not in memory, or larger than half of the limit of memory"
            # Ray's object store takes .3 of the memory, and its place is the disk if /dev/shm is smaller.
            if memory_bytes(shm["sizeLimit"]) < 0.3 * memory:
                yield f"{pod.where}: /dev/shm does not hold the object store of Ray"


def accounts(manifests: list[Manifest]) -> Iterator[str]:
    accounts = {one["metadata"]["name"]: one for one in manifests if one["kind"] == "ServiceAccount"}
    for pod in pod_templates(manifests):
        if pod.spec.get("serviceAccountName") not in accounts:
            yield f"{pod.where}: there is no ServiceAccount {pod.spec.get('serviceAccountName')}"
        for source in pod.container.get("envFrom", []):
            if source.get("secretRef", {}).get("name") not in _SECRETS:
                yield f"{pod.where}: it reads another secret than {sorted(_SECRETS)}"
        if pod.role in ("head", "worker", "watch") and not pod.container.get("envFrom"):
            yield f"{pod.where}: the variables of the object store are missing"
    for name, account in accounts.items():
        if account.get("automountServiceAccountToken") is not (name == "lsr-head"):
            yield f"ServiceAccount {name}: only the head has a token of Kubernetes by default"
    roles = {one["metadata"]["name"]: one for one in manifests if one["kind"] == "Role"}
    for role in roles.values():
        if role["rules"] != [{"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["get", "create"]}]:
            yield f"Role {role['metadata']['name']}: start_job.py needs get and create of rayjobs, nothing else"
    for binding in (one for one in manifests if one["kind"] == "RoleBinding"):
        subjects = {(one["kind"], one["name"], one["namespace"]) for one in binding["subjects"]}
        known = {("ServiceAccount", name, one["metadata"]["namespace"]) for name, one in accounts.items()}
        if binding["roleRef"]["name"] not in roles or binding["roleRef"]["kind"] != "Role" or not subjects <= known:
            yield f"RoleBinding {binding['metadata']['name']}: its role or its account does not exist"


def commands(manifests: list[Manifest]) -> Iterator[str]:
    maps = {one["metadata"]["name"]: one["data"] for one in manifests if one["kind"] == "ConfigMap"}
    suspended = {one["metadata"]["name"] for one in manifests if one["kind"] == "RayJob" and one["spec"].get("suspend")}
    for pod in pod_templates(manifests):
        container = pod.container
        hooks = [container.get("readinessProbe", {}), container.get("lifecycle", {}).get("preStop", {})]
        if pod.role in ("head", "worker") and "terminationGracePeriodSeconds" not in pod.spec:
            yield f"{pod.where}: it has no time to end"
        if pod.role == "worker" and not hooks[1].get("exec", {}).get("command"):
            yield f"{pod.where}: the node does not announce its end"
        for hook in hooks:
            yield from _command(pod, hook.get("exec", {}).get("command", []))
        if pod.role == "night":
            program, script, template = container["command"]
            volume = pod.mounted().get(str(Path(script).parent), {})
            if program != "python" or Path(script).name not in maps.get(volume.get("configMap", {}).get("name"), {}):
                yield f"{pod.where}: {' '.join(container['command'])} names a script that is not mounted"
            if template not in suspended:
                yield f"{pod.where}: there is no suspended RayJob {template}"
            missing = {"NAMESPACE", "JOB_NAME", "JOB_UID"} - {one["name"] for one in container["env"]}
            if missing:
                yield f"{pod.where}: start_job.py needs {sorted(missing)}"


def _command(pod: PodTemplate, command: list[str]) -> Iterator[str]:
    if command and command[:2] != ["/bin/sh", "-c"]:
        yield f"{pod.where}: {command} is not run by /bin/sh"
    for line in command[2:]:
        parts = [part.split() for part in re.split(r";|&&", re.sub(r'"[^"]*"', '""', line))]
        for words in parts:
            if not words or words[0] not in _PROGRAMS:
                yield f"{pod.where}: the image has no program {' '.join(words)}"
        seconds = sum(int(words[1]) for words in parts if words and words[0] == "sleep")
        if seconds >= pod.spec["terminationGracePeriodSeconds"]:
            yield f"{pod.where}: the hook takes longer than terminationGracePeriodSeconds"
