"""The script that starts a RayJob for the night, against a stand-in of the API over HTTP."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.infra.manifests.render import ROOT

TEMPLATE = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"name": "reindex", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
    "spec": {"suspend": True, "entrypoint": "lsr-prod reindex"},
    "status": {"jobDeploymentStatus": "Suspended"},
}


class Api:
    """The RayJobs of a namespace; each GET of a started job takes the next of its statuses."""

    def __init__(self, statuses: list[Any]) -> None:
        self.jobs: dict[str, Any] = {"reindex": TEMPLATE}
        self.statuses, self.created, self.tokens = statuses, 0, set[str]()

    def answer(self, method: str, name: str, body: Any) -> tuple[int, Any]:
        if method == "POST":
            if body["metadata"]["name"] in self.jobs:
                return 409, {"reason": "AlreadyExists"}
            self.jobs[body["metadata"]["name"]] = body
            self.created += 1
            return 201, body
        if name not in self.jobs:
            return 404, {"reason": "NotFound"}
        if name == "reindex":
            return 200, TEMPLATE
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return (status, {}) if isinstance(status, int) else (200, {**self.jobs[name], "status": status})


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Iterator[tuple[Api, dict[str, str]]]:
    found = Api(list(getattr(request, "param", [{"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}])))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply("GET", None)

        def do_POST(self) -> None:
            self._reply("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, method: str, body: Any) -> None:
            found.tokens.add(self.headers["Authorization"])
            prefix, _, name = self.path.partition("/rayjobs")
            assert prefix == "/apis/ray.io/v1/namespaces/night-shift"
            code, value = found.answer(method, name.strip("/"), body)
            data = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield found, {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_port)}
    server.shutdown()
    server.server_close()


def start(where: dict[str, str], folder: Path, template: str = "reindex") -> subprocess.CompletedProcess[str]:
    (folder / "token").write_text("secret-token\n")
    variables = {
        **os.environ,
        **where,
        "KUBERNETES_SCHEME": "http",
        "NAMESPACE": "night-shift",
        "JOB_NAME": "night-29384020",
        "JOB_UID": "uid-1",
        "POLL_SECONDS": "0.02",
        "SERVICE_ACCOUNT_FOLDER": str(folder),
    }
    command = [sys.executable, str(ROOT / "base/jobs/start_job.py"), template]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=60)


RUNNING = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
DONE = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}


@pytest.mark.parametrize("api", [[{}, RUNNING, RUNNING, 503, DONE]], indirect=True)
def test_a_copy_is_started_and_followed_through_an_outage(api: tuple[Api, dict[str, str]], tmp_path: Path) -> None:
    found, where = api
    done = start(where, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "night-29384020: waiting for the operator, job not started",
        "night-29384020: Running, job RUNNING",
        "night-29384020: Complete, job SUCCEEDED",
    ]
    made = found.jobs["night-29384020"]
    assert made["spec"] == {"suspend": False, "entrypoint": "lsr-prod reindex"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert not {"uid", "resourceVersion"} & set(made["metadata"])
    assert "status" not in made
    assert found.tokens == {"Bearer secret-token"}


def test_a_second_pod_of_the_job_follows_the_first_copy(api: tuple[Api, dict[str, str]], tmp_path: Path) -> None:
    found, where = api
    assert [start(where, tmp_path).returncode for _ in range(2)] == [0, 0]
    assert found.created == 1


FAILED = {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "gate counts refused version 7"}


@pytest.mark.parametrize("api", [[RUNNING, FAILED]], indirect=True)
def test_a_failed_night_fails_the_pod_with_its_message(api: tuple[Api, dict[str, str]], tmp_path: Path) -> None:
    done = start(api[1], tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "night-29384020: gate counts refused version 7"


def test_a_missing_template_ends_in_one_line(api: tuple[Api, dict[str, str]], tmp_path: Path) -> None:
    done = start(api[1], tmp_path, template="no-such-job")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "the RayJob no-such-job could not be started or followed: HTTP Error 404: Not Found"
    ]
