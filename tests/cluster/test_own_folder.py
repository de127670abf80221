"""The folder of a local Ray belongs to the user who starts it."""

import json
import os
import shlex
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lsr_prod.cluster.session import in_own_folder, own_folder, plain_python
from lsr_prod.errors import ConfigError

_SESSION = """
import json, os
from pathlib import Path
from lsr_prod.cluster import ray_session
from lsr_prod.config import RaySettings

def lock(path):
    from ray.air._internal.filelock import TempFileLock
    with TempFileLock(path) as held:
        return held._lock.lock_file

with ray_session(RaySettings(num_cpus=1)):
    import ray
    session = ray.get_runtime_context().get_session_name()
    places = [lock("a"), ray.get(ray.remote(lock).remote("a"))]
    found = [str(path) for path in Path(os.environ["RAY_TMPDIR"]).glob(f"ray/{session}")]
print(json.dumps([places, found, os.environ.get("RAY_TMPDIR")]))
"""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder that every user may write, as /tmp."""
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folder_in_a_shared_one_is_closed_to_others(shared: Path) -> None:
    assert own_folder() == own_folder() == shared / f"lsr-{os.geteuid()}"
    assert stat.S_IMODE(own_folder().stat().st_mode) == 0o700


def test_temporary_folder_of_the_user_is_used_as_it_is(shared: Path) -> None:
    shared.chmod(0o755)
    assert own_folder() == shared


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_folder_that_another_user_may_have_made_is_refused(shared: Path, kind: str) -> None:
    place = shared / f"lsr-{os.geteuid()}"
    if kind == "open":
        place.mkdir()
        place.chmod(0o777)
    elif kind == "link":
        (shared / "elsewhere").mkdir()
        place.symlink_to(shared / "elsewhere")
    else:
        place.touch()
    with pytest.raises(ConfigError, match=rf"RAY_TMPDIR: .*{place.name} can.*set it to a folder of your own"):
        own_folder()


@pytest.mark.root
def test_folder_of_another_user_is_refused(shared: Path) -> None:
    place = shared / f"lsr-{os.geteuid()}"
    place.mkdir(mode=0o700)
    os.chown(place, 10001, 10001)
    with pytest.raises(ConfigError, match="can be written by another user"):
        own_folder()


def test_given_folder_is_kept_and_another_is_forgotten(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", "/given")
    with in_own_folder():
        assert os.environ["RAY_TMPDIR"] == "/given"
    monkeypatch.delenv("RAY_TMPDIR")
    with in_own_folder():
        assert os.environ["RAY_TMPDIR"] == str(own_folder())
    assert "RAY_TMPDIR" not in os.environ


def test_python_in_a_folder_with_a_space_is_started_through_a_link(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = shared / "a b" / "env"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").write_text("program")
    monkeypatch.setattr(sys, "prefix", str(environment))
    monkeypatch.setattr(sys, "executable", str(environment / "bin" / "python"))
    for _ in range(2):  # the link is used again
        with plain_python():
            assert shlex.quote(sys.executable) == sys.executable
            assert Path(sys.executable).read_text() == "program"
        assert sys.executable == str(environment / "bin" / "python")
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    with plain_python():
        assert sys.executable == "/usr/bin/python3"


@pytest.mark.long
def test_sessions_and_locks_of_a_local_ray_are_in_the_folder_of_the_user() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("RAY_TMPDIR", "TMPDIR")}
    with tempfile.TemporaryDirectory(prefix="own-", dir="/tmp") as base:
        Path(base).chmod(0o1777)
        for name in ("ray", "_ray_lockfiles"):  # of another user
            (Path(base) / name).mkdir(mode=0o500)
        done = subprocess.run(
            [sys.executable, "-c", _SESSION],
            env={**environment, "TMPDIR": base},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        own = f"{base}/lsr-{os.geteuid()}"
        places, found, after = json.loads(done.stdout.splitlines()[-1])
        assert all(place.startswith(f"{own}/_ray_lockfiles/") for place in places)
        assert len(found) == 1
        assert found[0].startswith(f"{own}/ray/session_")
        assert after is None
