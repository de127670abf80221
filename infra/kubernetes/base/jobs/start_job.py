"""Start a copy of a suspended RayJob through the API of Kubernetes, follow it to its end, and end as it ended.

    python start_job.py NAME

Runs in a pod of a Job and needs only the standard library. The copy has the name of the Job, so that a second pod of
the same Job follows the first copy instead of starting another one, and belongs to the Job, so that it is deleted with
it. Exit codes: 0 the job succeeded, 1 it failed, 2 it could not be started.
"""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ENDED = ("Complete", "Failed", "ValidationFailed")
_POLL_S = float(os.environ.get("POLL_SECONDS", "10"))
_PATIENCE_S = 600.0  # without an answer of the API


class Kubernetes:
    """The RayJobs of one namespace."""

    def __init__(self) -> None:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        scheme = os.environ.get("KUBERNETES_SCHEME", "https")
        host = f"[{host}]" if ":" in host else host
        self._url = f"{scheme}://{host}:{port}/apis/ray.io/v1/namespaces/{os.environ['NAMESPACE']}/rayjobs"
        self._account = Path(os.environ.get("SERVICE_ACCOUNT_FOLDER", _ACCOUNT))

    def get(self, name: str) -> dict[str, Any]:
        """Return a RayJob."""
        return self._call("GET", f"/{name}", None)

    def create(self, job: dict[str, Any]) -> None:
        """Create a RayJob; one of that name may exist already."""
        try:
            self._call("POST", "", job)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        token = (self._account / "token").read_text().strip()  # read each time: Kubernetes renews it
        request = urllib.request.Request(  # noqa: S310 (the scheme is https in a cluster)
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        context = None
        if self._url.startswith("https"):
            context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:  # noqa: S310
            read: dict[str, Any] = json.load(answer)
            return read


def copy_of(template: dict[str, Any], name: str, uid: str) -> dict[str, Any]:
    """Return the RayJob to create: not suspended, and owned by the Job ``name``."""
    labels = {**template["metadata"].get("labels", {}), "lsr-prod/started-by": name}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "blockOwnerDeletion": False}
    return {
        "apiVersion": template["apiVersion"],
        "kind": template["kind"],
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {**template["spec"], "suspend": False},
    }


def follow(kubernetes: Kubernetes, name: str) -> int:
    """Wait for the end of a RayJob and return the exit code; a short outage of the API is waited out."""
    said, answered = "", time.monotonic()
    while True:
        try:
            status = kubernetes.get(name).get("status", {})
            answered = time.monotonic()
        except (OSError, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404):
                raise
            if time.monotonic() - answered > _PATIENCE_S:
                raise
            status = None
        if status is not None:
            state = status.get("jobDeploymentStatus", "")
            line = f"{name}: {state or 'waiting for the operator'}, job {status.get('jobStatus') or 'not started'}"
            if line != said:
                print(line, flush=True)
                said = line
            if state in _ENDED:
                if status.get("message"):
                    print(f"{name}: {status['message']}", flush=True)
                return 0 if state == "Complete" and status.get("jobStatus") == "SUCCEEDED" else 1
        time.sleep(_POLL_S)


def main() -> int:
    """Start the job that the command line names, and follow it."""
    template, name, uid = sys.argv[1], os.environ["JOB_NAME"], os.environ["JOB_UID"]
    try:
        kubernetes = Kubernetes()
        kubernetes.create(copy_of(kubernetes.get(template), name, uid))
        return follow(kubernetes, name)
    except (OSError, ValueError) as error:
        print(f"the RayJob {template} could not be started or followed: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
