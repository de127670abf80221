"""A small stand-in for the API of Kubernetes over HTTPS, for kubectl: discovery, objects, watches and logs of pods.

It validates objects by the schemas of ``tests.infra.manifests``, with unknown keys refused, and refuses what a cluster
refuses: a namespace that is not there, a kind that is not installed, a name that is taken, a token without rights.
"""

import copy
import itertools
import json
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.infra.deploy.protobuf import job_and_cron_job
from tests.infra.manifests.schemas import schema_problems

__all__ = ["ADMIN", "ApiServer", "Manifest", "Refusal"]

ADMIN = "token-of-the-administrator"
Manifest = dict[str, Any]
Key = tuple[str, str, str, str]
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_GROUPS: dict[str, list[tuple[str, str, bool]]] = {  # group/version: (kind, plural, namespaced)
    "v1": [
        ("Namespace", "namespaces", False), ("ConfigMap", "configmaps", True), ("Secret", "secrets", True),
        ("ServiceAccount", "serviceaccounts", True), ("Pod", "pods", True), ("Service", "services", True),
    ],
    "apps/v1": [("Deployment", "deployments", True)],
    "batch/v1": [("CronJob", "cronjobs", True), ("Job", "jobs", True)],
    "networking.k8s.io/v1": [("NetworkPolicy", "networkpolicies", True)],
    "policy/v1": [("PodDisruptionBudget", "poddisruptionbudgets", True)],
    "rbac.authorization.k8s.io/v1": [("Role", "roles", True), ("RoleBinding", "rolebindings", True)],
    "apiextensions.k8s.io/v1": [("CustomResourceDefinition", "customresourcedefinitions", False)],
    "ray.io/v1": [
        ("RayJob", "rayjobs", True), ("RayCluster", "rayclusters", True), ("RayService", "rayservices", True),
    ],
    "monitoring.coreos.com/v1": [("PodMonitor", "podmonitors", True), ("PrometheusRule", "prometheusrules", True)],
}  # fmt: skip


class Refusal(Exception):  # noqa: N818 - it is an answer
    """A refusal of a request.

    Args:
        code: status of HTTP.
        reason: word of the API.
        message: sentence.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class ApiServer:
    """The objects of a cluster, served on a port of loopback.

    Attributes:
        url: of the server.
        certificate: file with its certificate, signed by itself.
        on_create: called with each new object, without its lock.
        logs: text by (namespace, name of the pod).
    """

    def __init__(self, folder: Path) -> None:
        """Start the server.

        Args:
            folder: of its certificate.
        """
        self._objects: dict[Key, Manifest] = {}
        self._changed = threading.Condition()
        self._versions = itertools.count(1)
        self.on_create: Callable[[Manifest], None] = lambda _: None
        self.logs: dict[tuple[str, str], str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.certificate = folder / "ca.crt"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, _make_certificate(self.certificate))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        for group in ("ray.io", "monitoring.coreos.com"):
            for kind, plural, _ in _GROUPS[f"{group}/v1"]:
                self.put("apiextensions.k8s.io/v1", "customresourcedefinitions", "", _definition(group, kind, plural))

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def get(self, group: str, plural: str, namespace: str, name: str) -> Manifest:
        """Return an object.

        Raises:
            Refusal: it does not exist.
        """
        with self._changed:
            found = self._objects.get((group, plural, namespace, name))
        if found is None:
            raise Refusal(404, "NotFound", f'{plural} "{name}" not found')
        return copy.deepcopy(found)

    def list(self, group: str, plural: str, namespace: str) -> list[Manifest]:
        """Return the objects of a kind; "" is all namespaces."""
        with self._changed:
            keys = [key for key in self._objects if key[:2] == (group, plural) and namespace in ("", key[2])]
            return [copy.deepcopy(self._objects[key]) for key in sorted(keys)]

    def put(self, group: str, plural: str, namespace: str, found: Manifest) -> Manifest:
        """Store an object."""
        metadata = found["metadata"]
        with self._changed:
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata.setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
            metadata["resourceVersion"] = str(next(self._versions))
            if namespace:
                metadata["namespace"] = namespace
            self._objects[group, plural, namespace, metadata["name"]] = copy.deepcopy(found)
            self._changed.notify_all()
        return found

    def create(self, group: str, plural: str, namespace: str, found: Manifest) -> Manifest:
        """Validate and store a new object.

        Raises:
            Refusal: it is not valid, its name is taken, or its namespace does not exist.
        """
        kinds = {other: kind for kind, other, _ in _GROUPS[group]}
        if (found.get("apiVersion"), found.get("kind")) != (group, kinds[plural]):
            raise Refusal(400, "BadRequest", f"{found.get('apiVersion')} {found.get('kind')} is not in {plural}")
        if problems := schema_problems(found):
            raise Refusal(422, "Invalid", "; ".join(problems))
        if namespace:
            self.get("v1", "namespaces", "", namespace)
        name = found["metadata"]["name"]
        if (group, plural, namespace, name) in self._objects:
            raise Refusal(409, "AlreadyExists", f'{plural} "{name}" already exists')
        made = self.put(group, plural, namespace, found)
        self.on_create(copy.deepcopy(made))
        return self.get(group, plural, namespace, name)

    def set_status(self, found: Manifest, status: Manifest) -> None:
        """Change the status of an object."""
        group = found["apiVersion"]
        plural = next(plural for kind, plural, _ in _GROUPS[group] if kind == found["kind"])
        namespace, name = found["metadata"].get("namespace", ""), found["metadata"]["name"]
        self.put(group, plural, namespace, {**self.get(group, plural, namespace, name), "status": status})

    def watch(self, group: str, plural: str, namespace: str, seconds: float) -> Iterator[Manifest]:
        """Yield every object of a kind whenever it changes."""
        seen: dict[str, str] = {}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for found in self.list(group, plural, namespace):
                name, version = found["metadata"]["name"], found["metadata"]["resourceVersion"]
                if seen.get(name) != version:
                    seen[name] = version
                    yield found
            with self._changed:
                self._changed.wait(0.2)

    def require_right(self, token: str, verb: str, group: str, plural: str, namespace: str) -> None:
        """Refuse a request whose token does not allow it; a service account's token is its name.

        Raises:
            Refusal: the token is unknown, or no role of the account has the verb.
        """
        if token == ADMIN:
            return
        for binding in self.list("rbac.authorization.k8s.io/v1", "rolebindings", namespace):
            if token in [subject["name"] for subject in binding["subjects"]]:
                role = self.get("rbac.authorization.k8s.io/v1", "roles", namespace, binding["roleRef"]["name"])
                for rule in role["rules"]:
                    asked = {"apiGroups": group.rpartition("/")[0], "resources": plural, "verbs": verb}
                    if all(value in rule[key] for key, value in asked.items()):
                        return
        raise Refusal(403, "Forbidden", f"{token!r} cannot {verb} {plural} in {namespace!r}")


def discovery(path: str) -> Manifest | None:
    """Return the answer to a question about kinds, or None."""
    groups = [group for group in _GROUPS if "/" in group]
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        found = []
        for group in groups:
            version = {"groupVersion": group, "version": group.partition("/")[2]}
            found.append({"name": group.partition("/")[0], "versions": [version], "preferredVersion": version})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
    if path == "/openapi/v3":
        places = ["api/v1", *(f"apis/{group}" for group in groups)]
        return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in places}}
    group = path.removeprefix("/openapi/v3").removeprefix("/apis/").removeprefix("/api/")
    if group not in _GROUPS:
        return None
    if path.startswith("/openapi/v3"):
        return _openapi(group)
    resources = [
        {"name": plural, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind, "verbs": _VERBS}
        | ({"shortNames": ["crd"]} if kind == "CustomResourceDefinition" else {})
        for kind, plural, namespaced in _GROUPS[group]
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources}


def _openapi(group: str) -> Manifest:
    """Say that PATCH validates fields, which makes kubectl leave the validation to the server."""
    name, _, version = group.rpartition("/")
    paths = {}
    for kind, plural, namespaced in _GROUPS[group]:
        root = f"/apis/{group}" if name else f"/api/{group}"
        middle = "/namespaces/{namespace}" if namespaced else ""
        paths[f"{root}{middle}/{plural}/{{name}}"] = {
            "patch": {
                "x-kubernetes-group-version-kind": {"group": name, "version": version, "kind": kind},
                "parameters": [{"name": "fieldValidation", "in": "query"}],
                "responses": {},
            }
        }
    return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": "1"}, "paths": paths}


def _make_certificate(file: Path) -> Path:
    """Write a certificate for loopback; returns the file of its key."""
    key = file.with_suffix(".key")
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=stand-in"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(file)]
    subprocess.run(["openssl", "req", "-x509", *kind, *names], check=True, capture_output=True)
    return key


def _definition(group: str, kind: str, plural: str) -> Manifest:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": {"kind": kind, "plural": plural}, "scope": "Namespaced"},
    }


def _place(path: str) -> tuple[str, str, str, str, str]:
    """Return group and version, plural, namespace, name and subresource of a path."""
    parts = path.strip("/").split("/")
    group, rest = ("v1", parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] != "finalize":
        namespace, rest = rest[1], rest[2:]
    plural, name, below = [*rest, "", "", ""][:3]
    if plural not in [other for _, other, _ in _GROUPS.get(group, [])]:
        raise Refusal(404, "NotFound", f"the server could not find the requested resource {path}")
    return group, plural, namespace, name, below


def _chosen(found: Manifest, query: dict[str, list[str]]) -> bool:
    """Return whether an object has the fields and labels of a selector."""
    fields = {"metadata.name": found["metadata"]["name"], "metadata.namespace": found["metadata"].get("namespace", "")}
    for selector, values in (("fieldSelector", fields), ("labelSelector", found["metadata"].get("labels", {}))):
        for term in filter(None, ",".join(query.get(selector, [])).split(",")):
            key, _, value = term.partition("=")
            if values.get(key) != value.removeprefix("="):
                return False
    return True


def _handler(api: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._try(self._read)

        def do_POST(self) -> None:
            self._try(self._create)

        def log_message(self, *arguments: Any) -> None:
            pass

        def _try(self, answer: Callable[[str, dict[str, list[str]]], None]) -> None:
            parts = urlsplit(self.path)
            try:
                answer(parts.path.rstrip("/"), parse_qs(parts.query))
            except Refusal as refusal:
                status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": refusal.code}
                self._send({**status, "reason": refusal.reason, "message": str(refusal)}, refusal.code)
            except BrokenPipeError:
                pass  # kubectl has seen enough of a watch

        def _allow(self, verb: str, group: str, plural: str, namespace: str) -> None:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            api.require_right(token, verb, group, plural, namespace)

        def _read(self, path: str, query: dict[str, list[str]]) -> None:
            if (found := discovery(path)) is not None:
                self._send(found)
                return
            group, plural, namespace, name, below = _place(path)
            self._allow("get" if name else "list", group, plural, namespace)
            if below == "log":
                self._send_text(api.logs[namespace, name])
            elif name:
                self._send(api.get(group, plural, namespace, name))
            elif query.get("watch"):
                self._watch(group, plural, namespace, query)
            else:
                items = [one for one in api.list(group, plural, namespace) if _chosen(one, query)]
                kind = next(kind for kind, other, _ in _GROUPS[group] if other == plural)
                about = {"kind": f"{kind}List", "apiVersion": group, "metadata": {"resourceVersion": "0"}}
                self._send({**about, "items": items})

        def _create(self, path: str, _: dict[str, list[str]]) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            group, plural, namespace = _place(path)[:3]
            self._allow("create", group, plural, namespace)
            if self.headers["Content-Type"] == "application/json":
                body = json.loads(data)
            else:
                body = self._copy_of_cron_job(namespace, data)
            self._send(api.create(group, plural, namespace, body), 201)

        def _copy_of_cron_job(self, namespace: str, data: bytes) -> Manifest:
            try:
                name, owner = job_and_cron_job(data)
            except (ValueError, KeyError) as error:
                raise Refusal(415, "UnsupportedMediaType", f"only JSON is understood here: {error!r}") from error
            template = api.get("batch/v1", "cronjobs", namespace, owner)["spec"]["jobTemplate"]
            labels = {"labels": template.get("metadata", {}).get("labels", {})}
            return {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, **labels},
                "spec": template["spec"],
            }

        def _watch(self, group: str, plural: str, namespace: str, query: dict[str, list[str]]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            for found in api.watch(group, plural, namespace, float(query.get("timeoutSeconds", ["600"])[0])):
                if _chosen(found, query):
                    self.wfile.write(json.dumps({"type": "MODIFIED", "object": found}).encode() + b"\n")
                    self.wfile.flush()
            self.close_connection = True

        def _send(self, body: Manifest, code: int = 200) -> None:
            self._send_text(json.dumps(body), code, "application/json")

        def _send_text(self, text: str, code: int = 200, kind: str = "text/plain") -> None:
            data = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler
