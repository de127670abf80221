"""Ray cluster on loopback that accepts submitted jobs."""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def small_chain(folder: Path) -> dict[str, Any]:
    """Write a tiny model and pairs of words; return the settings of one stage of a few steps, without Ray."""
    from tests.model.tiny import tiny_checkpoint  # imports torch

    start = tiny_checkpoint(folder / "bert", "bert")
    rows = [{"query": f"w{i} w7", "positive": f"w{i} w9 w5"} for i in range(1, 60)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stage = {
        "data": {"paths": [str(folder / "pairs.jsonl")], "kind": "pairs"},
        "batch": {"queries": 8},
        "steps": 3,
        "objective": {"losses": [{"loss": "info_nce"}]},
    }
    folders = {"model": str(start), "output": str(folder / "trained"), "work": str(folder / "work")}
    return {"train": {**folders, "stages": [stage]}}


class Head(NamedTuple):
    """A head node.

    Attributes:
        dashboard: URL for ``ray job submit``.
        pid: process from which all others of the node descend.
    """

    dashboard: str
    pid: int


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment for loopback only, with an authentication token that these tests create."""
    token = tmp_path_factory.mktemp("head") / "token"
    token.write_text(secrets.token_hex(32))
    settings = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    return {**os.environ, **settings, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}


@pytest.fixture(scope="module")
def head(environment: dict[str, str]) -> Iterator[Head]:
    """Ray head node that is stopped after the tests of a module."""
    gcs, dashboard, client, agent = free_ports(4)
    # A submitted job connects to the address that the newest cluster wrote into Ray's folder: each has its own. Its
    # path is short because it starts the paths of sockets, which have at most 107 characters.
    folder = tempfile.mkdtemp(prefix="ray-")
    # Ray starts its client server and the workers of submitted jobs by a line of a shell that does not quote Python.
    (Path(folder) / "env").symlink_to(sys.prefix)
    command = [
        f"{folder}/env/bin/python", "-m", "ray.scripts.scripts", "start", "--head", "--block",
        "--node-ip-address=127.0.0.1", f"--port={gcs}",
        "--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}",
        f"--ray-client-server-port={client}", f"--dashboard-agent-listen-port={agent}", "--num-cpus=2",
        "--disable-usage-stats", f"--temp-dir={folder}",
    ]  # fmt: skip
    log_file = Path(environment["RAY_AUTH_TOKEN_PATH"]).with_name("head.log")
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    address = f"http://127.0.0.1:{dashboard}"
    try:
        _wait(address, process, log_file)
        yield Head(address, process.pid)
    finally:
        # Killed: a graceful stop of Ray waits half a minute for its agent.
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        process.kill()
        process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"{address}/api/version", timeout=5).close()
            return
        except urllib.error.HTTPError:  # it answers and requires the token
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"no dashboard at {address}: {log.read_text()}")
