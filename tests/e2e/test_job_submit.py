"""``ray job submit`` against a cluster on loopback gives the table that the direct run gives."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Loopback only, and a token of this test's own: a cluster that takes jobs wants one."""
    token = tmp_path / "token"
    token.write_text(secrets.token_hex(32))
    settings = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    return {**os.environ, **settings, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}


@pytest.fixture
def head(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """The dashboard's address of a Ray head that ends with the test."""
    gcs, dashboard, client, agent = free_ports(4)
    command = [
        str(BIN / "ray"), "start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={gcs}",
        "--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}",
        f"--ray-client-server-port={client}", f"--dashboard-agent-listen-port={agent}", "--num-cpus=2",
        "--disable-usage-stats",
    ]  # fmt: skip
    with (tmp_path / "head.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    address = f"http://127.0.0.1:{dashboard}"
    try:
        _wait(address, process, tmp_path / "head.log")
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def _wait(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"{address}/api/version", timeout=5).close()
            return
        except urllib.error.HTTPError:  # it answers, and wants its token
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"no dashboard at {address}: {log.read_text()}")


def test_a_submitted_job_gives_the_digest_of_the_direct_run(
    tmp_path: Path, tiny_bundle: Path, environment: dict[str, str], head: str
):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("".join(json.dumps({"_id": f"d{i}", "text": f"quick fox {i}"}) + "\n" for i in range(50)))
    digests = []
    job = [sys.executable, "jobs/encode.py", "--config"]
    submit = [str(BIN / "ray"), "job", "submit", "--address", head, "--working-dir", ".", "--", *job]
    for name, command in (("direct", job), ("submitted", submit)):
        config = tmp_path / f"{name}.yaml"
        encode = {"bundle": str(tiny_bundle), "table": str(tmp_path / name), "buckets": 2}
        config.write_text(json.dumps({"source": {"paths": [str(corpus)]}, "encode": encode, "ray": {}}))
        done = subprocess.run(
            [*command, str(config)], cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
        digests.append(json.loads(line.removeprefix("RESULT "))["table_digest"])
    assert "succeeded" in done.stdout + done.stderr
    assert digests[0] == digests[1]
