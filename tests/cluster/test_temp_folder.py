"""The folder of a local Ray: a name that is too long for sockets is refused before anything is written."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lsr_prod.cluster.session import check_temp_folder
from lsr_prod.config import RaySettings
from lsr_prod.errors import ConfigError

_START = """
import os, sys
from lsr_prod.cluster import ray_session
from lsr_prod.cluster.session import check_temp_folder
from lsr_prod.config import RaySettings
from lsr_prod.errors import ConfigError
folder = sys.argv[1]
while True:
    os.environ["RAY_TMPDIR"] = folder + "x"
    try:
        check_temp_folder(RaySettings())
    except ConfigError:
        break
    folder += "x"
os.environ["RAY_TMPDIR"] = folder
os.mkdir(folder)
with ray_session(RaySettings(num_cpus=1)):
    print(len(folder))
"""


@pytest.mark.parametrize("name", ["RAY_TMPDIR", "TMPDIR"])
def test_name_that_is_too_long_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: its value has 130 bytes.*set RAY_TMPDIR to"):
        check_temp_folder(RaySettings(), {name: "/tmp/" + "x" * 125})


@pytest.mark.parametrize("kind", ["closed", "file"])
def test_folder_that_cannot_be_written_is_refused(kind: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        place = Path(short) / kind
        place.mkdir(mode=0o500) if kind == "closed" else place.touch()
        with pytest.raises(ConfigError, match=f"RAY_TMPDIR: files cannot be created in .*{kind}; set it to a folder"):
            check_temp_folder(RaySettings(), {"RAY_TMPDIR": str(place / "below" / "it")})
        check_temp_folder(RaySettings(), {"TMPDIR": str(place)})


@pytest.mark.parametrize("environment", [{}, {"RAY_TMPDIR": "/tmp", "TMPDIR": "/" + "x" * 200}])
def test_folder_that_ray_uses_is_checked(environment: dict[str, str]) -> None:
    check_temp_folder(RaySettings(), environment)


def test_running_cluster_has_its_own_folder() -> None:
    check_temp_folder(RaySettings(address="10.0.0.5:6379"), {"RAY_TMPDIR": "/" + "x" * 200})
    check_temp_folder(RaySettings(), {"RAY_TMPDIR": "/" + "x" * 200, "RAY_ADDRESS": "10.0.0.5:6379"})


@pytest.mark.long
def test_ray_starts_in_the_longest_folder_that_is_accepted() -> None:
    folder = f"/tmp/{os.getpid()}-"
    done = subprocess.run(
        [sys.executable, "-c", _START, folder], capture_output=True, text=True, check=False, timeout=120
    )
    subprocess.run(["sh", "-c", f"rm -r {folder}*"], check=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > len("/tmp") + 20


@pytest.mark.long
def test_reindex_is_refused_before_anything_is_written(tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "text": "a lock"}\n')
    chain = f"bundle: {tiny_bundle}, table: {tmp_path}/table"
    (tmp_path / "d.yaml").write_text(
        f"source: {{paths: [{tmp_path}/corpus.jsonl]}}\nencode: {{{chain}}}\nindex: {{{chain}, output: {tmp_path}/i}}\n"
    )
    before = sorted(tmp_path.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "lsr_prod", "reindex", "--config", str(tmp_path / "d.yaml")],
        env={**os.environ, "RAY_TMPDIR": "/tmp/" + "x" * 125},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert "RAY_TMPDIR: its value has 130 bytes" in line
    assert sorted(tmp_path.iterdir()) == before
