import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import ray

from lsr_prod.cluster import ray_session, session
from lsr_prod.cluster.session import _start_local
from lsr_prod.config import RaySettings
from lsr_prod.errors import ConfigError, WorkerError
from tests.listeners import Listener, kinds

ROOT = Path(__file__).parents[2]

_LISTENERS = """
import json, os
import lsr_prod.encoding  # imports Ray before the session sets its variables
from lsr_prod.cluster import ray_session
from lsr_prod.config import RaySettings
from tests.listeners import listeners

with ray_session(RaySettings(num_cpus=1)):
    import ray
    assert ray.get(ray.remote(lambda: 1).remote()) == 1
    print(json.dumps(listeners(os.getpid())))
"""


def test_local_cluster_listens_on_loopback_with_a_private_token(tmp_path: Path) -> None:
    ours = ("RAY_AUTH_", "RAY_ENABLE_", "RAY_ACCEL_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-c", _LISTENERS],
        cwd=ROOT,
        env=environment | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((tmp_path / ".ray" / "auth_token").stat().st_mode) == 0o600
    found = [Listener(*each) for each in json.loads(done.stdout.splitlines()[-1])]
    assert kinds(found) >= {"control store", "scheduler", "driver"}


def test_existing_connection_is_used_and_left_open(ray_local: None) -> None:
    with ray_session(RaySettings(address="127.0.0.1:1")):
        assert ray.is_initialized()
    assert ray.is_initialized()


def test_address_without_a_listener_raises_config_error() -> None:
    code = (
        "from lsr_prod.cluster import ray_session\nfrom lsr_prod.config import RaySettings\n"
        "from lsr_prod.errors import ConfigError\n"
        "try:\n    with ray_session(RaySettings(address='127.0.0.1:1')): pass\n"
        "except ConfigError as error:\n    print(error.field)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == ConfigError("ray.address", "", "").field, done.stderr


def test_slow_start_of_a_local_cluster_is_repeated_and_then_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []

    def init(**_options: object) -> None:
        starts.append(1)
        if len(starts) != 5:
            raise Exception("The current node timed out during startup. This could happen because ...")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(WorkerError, match="in 3 attempts of 30 s; end other programs"):
        _start_local(1)
    assert len(starts) == 3
    _start_local(1)
    assert len(starts) == 5


def test_cluster_of_another_version_is_a_bad_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: 3.11.9")

    monkeypatch.setattr(session, "check_address", lambda *_, **__: None)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ConfigError, match=r"ray\.address: Ray does not connect to 10\.0\.0\.1:6379: Version mismatch"):
        session._connect("10.0.0.1:6379", None, None)
