"""Settings that the serve job refuses before it starts anything."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from lsr_prod.config import Deployment, RaySettings, ServeSettings
from lsr_prod.errors import ConfigError
from lsr_prod.serving.job import serve_index
from lsr_prod.storage import Store
from tests.indexing.corpus import Doc, make_index
from tests.indexing.remote import upload_current


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    make_index(tmp_path / "index", {"a": Doc({0: 1})}, vocabulary_size=2)
    return tmp_path / "index"


def deployment(index: Path, *, ray: RaySettings | None = None, **settings: object) -> Deployment:
    return Deployment(ray=ray or RaySettings(num_cpus=2), serve=ServeSettings(index=str(index), **settings))  # type: ignore[arg-type]


def test_serving_a_missing_index_is_refused(index: Path) -> None:
    with pytest.raises(ConfigError, match=r"serve\.index: .*nowhere is not a folder"):
        serve_index(deployment(index.parent / "nowhere"), local=True)
    with pytest.raises(ConfigError, match=r"serve\.index: .*no publication"):
        serve_index(deployment(index.parent), local=True)


def test_serving_needs_a_cluster_or_local(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"ray\.address: no cluster is set"):
        serve_index(deployment(index))
    with pytest.raises(ConfigError, match=r"ray\.address: 127\.0\.0\.1:1 is set, but --local"):
        serve_index(deployment(index, ray=RaySettings(address="127.0.0.1:1")), local=True)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:2")
    with pytest.raises(ConfigError, match=r"ray\.address: 127\.0\.0\.1:2 is set"):
        serve_index(deployment(index), local=True)


def test_serving_on_too_few_cores_is_refused(index: Path) -> None:
    with pytest.raises(ConfigError, match=r"serve\.cpus: .*7 in total, but there are 2 cores; give 0\.28 or less"):
        serve_index(deployment(index, shard_groups=3, replicas=2), local=True)


@pytest.mark.parametrize(("cpus", "given", "routers"), [(1, None, 2), (1.5, None, 1), (0.5, 3, 3)])
def test_locally_there_are_no_more_routers_than_cores(
    index: Path, monkeypatch: pytest.MonkeyPatch, cpus: float, given: int | None, routers: int
) -> None:
    started: list[ServeSettings] = []

    def start(settings: ServeSettings, _: object) -> None:
        started.append(settings)
        raise InterruptedError

    monkeypatch.setattr("lsr_prod.serving.job.ray_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr("lsr_prod.serving.application.start", start)
    monkeypatch.setattr("ray.serve.shutdown", lambda: None)
    with pytest.raises(InterruptedError):
        serve_index(deployment(index, cpus=cpus, routers=given, ray=RaySettings(num_cpus=2)), local=True)
    assert started[0].router_count == routers


def test_open_ports_of_ray_serve_are_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_SERVE_USE_GRPC_BY_DEFAULT", "1")
    with pytest.raises(ConfigError, match="RAY_SERVE_USE_GRPC_BY_DEFAULT"):
        serve_index(deployment(index), local=True)


@pytest.mark.slow
@pytest.mark.parametrize("remote", [False, True])
def test_local_serving_ends_with_an_interrupt(
    index: Path, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, remote: bool
) -> None:
    monkeypatch.setenv("LSR_PROD_CACHE", str(index.parent / "cache"))
    store = Store(f"s3://lsr/{index.parent.name}", s3_options)
    upload_current(index, store)
    served = {"serve": {"index": store.uri if remote else str(index), "cpus": 0.1}, "storage": {"options": s3_options}}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = index.parent / "deployment.yaml"
    served["serve"]["http_port"] = port
    config.write_text(yaml.safe_dump(served))
    command = [sys.executable, "jobs/serve.py", "--local", "--config", str(config)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        try:
            assert job.stdout is not None
            assert any("serving until interrupted" in line for line in job.stdout)
            body = json.dumps({"vector": {"t0": 1.0}}).encode()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/search", body, timeout=30) as answer:
                assert [hit["doc_id"] for hit in json.loads(answer.read())["hits"]] == ["a"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as answer:
                assert json.loads(answer.read())["status"] == "ok"
        finally:
            job.send_signal(signal.SIGINT)
        last = job.stdout.read().splitlines()[-1]
    assert job.returncode == 0
    assert json.loads(last.removeprefix("RESULT "))["publication"] == 1
