"""What acts on the objects of the stand-in of Kubernetes: the pods of Jobs, and RayJobs.

A container's command is run on this computer, with the environment, volumes and account that its pod names; what is
missing in the cluster fails as it does there. The cluster of a RayJob is a local Ray.
"""

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.cluster.namespaces import ROOT
from tests.infra.deploy.api_server import ApiServer, Manifest
from tests.infra.manifests.pods import PodTemplate, pod_templates

__all__ = ["EntryPoint", "Operator"]

EntryPoint = Callable[[list[str], dict[str, str]], int]
"""Runs the entry point of a RayJob with its variables; returns the exit code."""


class Operator:
    """Starts what a new object asks for, in a thread of its own.

    Args:
        api: where the objects are.
        folder: for volumes.
        entry_point: runs the entry points of RayJobs.
    """

    def __init__(self, api: ApiServer, folder: Path, entry_point: EntryPoint) -> None:
        self._api, self._folder, self._entry_point = api, folder, entry_point
        api.on_create = self._created

    def _created(self, made: Manifest) -> None:
        action = {"Job": self._job, "RayJob": self._ray_job}.get(made["kind"])
        if made["kind"] == "RayJob" and made["spec"].get("suspend"):
            self._api.set_status(made, {"jobDeploymentStatus": "Suspended"})
        elif action is not None:
            threading.Thread(target=action, args=(made,), daemon=True).start()

    def _job(self, made: Manifest) -> None:
        """Run the pod of a Job."""
        name, uid, namespace = (made["metadata"][key] for key in ("name", "uid", "namespace"))
        labels = {"batch.kubernetes.io/job-name": name, "batch.kubernetes.io/controller-uid": uid}
        template = made["spec"]["template"]
        labels = {**template["metadata"]["labels"], **labels}
        metadata = {"name": f"{name}-0", "labels": labels}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        made["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        self._api.put("batch/v1", "jobs", namespace, made)
        pod = self._api.put("v1", "pods", namespace, pod)
        try:
            found = PodTemplate(name, "other", labels, template["spec"])
            command, environment = self._prepare(found, pod, found.container["command"])
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            code, said = done.returncode, done.stdout + done.stderr
        except Exception as error:  # noqa: BLE001 - the Job ends, whatever happens in this thread
            code, said = 1, f"{error!r}\n"
        self._api.logs[namespace, f"{name}-0"] = said
        self._api.set_status(pod, {"phase": "Failed" if code else "Succeeded"})
        self._api.set_status(made, {"conditions": [{"type": "Failed" if code else "Complete", "status": "True"}]})

    def _ray_job(self, made: Manifest) -> None:
        """Run the entry point of a RayJob as its head would."""
        self._api.set_status(made, {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"})
        try:
            for pod in pod_templates([made]):  # what one of them lacks, the cluster lacks
                self._prepare(pod, made, ["true"])
            (head,) = [pod for pod in pod_templates([made]) if pod.role == "head"]
            command, environment = self._prepare(head, made, made["spec"]["entrypoint"].split())
            options = made["spec"]["rayClusterSpec"]["authOptions"]
            environment["RAY_AUTH_MODE"] = options["mode"]
            environment["RAY_AUTH_TOKEN"] = self._secret(made, options["secretName"])["auth_token"]
            failed = self._entry_point(command, environment) != 0
            message = "the entry point failed" if failed else ""
        except Exception as error:  # noqa: BLE001 - the RayJob ends, whatever happens in this thread
            failed, message = True, repr(error)
        end = {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": message}
        self._api.set_status(made, end if failed else {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"})

    def _prepare(self, pod: PodTemplate, owner: Manifest, command: list[str]) -> tuple[list[str], dict[str, str]]:
        """Return command and variables of a container, with volumes as folders of this computer.

        Raises:
            Refusal: the cluster lacks an account, a secret or a configuration that the pod names.
        """
        namespace = owner["metadata"]["namespace"]
        account = pod.spec.get("serviceAccountName", "default")
        self._api.get("v1", "serviceaccounts", namespace, account)
        environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(self._folder)}
        for source in pod.container.get("envFrom", []):
            environment |= self._secret(owner, source["secretRef"]["name"])
        for one in pod.container.get("env", []):
            environment[one["name"]] = one["value"] if "value" in one else _field(one["valueFrom"]["fieldRef"], owner)
        folders = {path: self._volume(owner, path, volume) for path, volume in pod.mounted().items()}
        command = [_inside(word, folders) for word in command]
        host, port = self._api.url.removeprefix("https://").split(":")
        (self._folder / account).mkdir(exist_ok=True)
        (self._folder / account / "token").write_text(account)
        (self._folder / account / "ca.crt").write_bytes(self._api.certificate.read_bytes())
        return command, environment | {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "SERVICE_ACCOUNT_FOLDER": str(self._folder / account),
            "POLL_SECONDS": "0.2",
            "LSR_PROD_CACHE": str(self._folder / "node-cache"),
            "PYTHONPATH": str(ROOT),
        }

    def _volume(self, owner: Manifest, path: str, volume: Manifest) -> Path:
        folder = self._folder / owner["metadata"]["name"] / path.strip("/").replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            found = self._api.get("v1", "configmaps", owner["metadata"]["namespace"], volume["configMap"]["name"])
            for name, text in found["data"].items():
                (folder / name).write_text(text)
        return folder

    def _secret(self, owner: Manifest, name: str) -> dict[str, str]:
        found = self._api.get("v1", "secrets", owner["metadata"]["namespace"], name)
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}


def _inside(word: str, folders: dict[str, Path]) -> str:
    """Return a path in a volume as one of this computer, and any other word as it is."""
    for path, folder in folders.items():
        if word.startswith(f"{path}/"):
            return f"{folder}{word.removeprefix(path)}"
    return word


def _field(source: Manifest, owner: Manifest) -> str:
    """Return the value of a field of the pod that a variable names."""
    path = source["fieldPath"]
    if path == "status.podIP":
        return "127.0.0.1"
    if path.startswith("metadata.labels['"):
        return str(owner["metadata"]["labels"][path.removeprefix("metadata.labels['").removesuffix("']")])
    return str(owner["metadata"][path.removeprefix("metadata.")])
