"""Some of the full disks of ``make faults``, without export and the jobs on Ray; and the calls that are counted."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.full_disk.preload import compile_library
from tests.faults.test_faults import faults

FINDINGS = ("raw", "signals", "half_published", "unequal_after_resume")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux" or shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("needs Linux and a C compiler, which makes the library that fails calls")
    return compile_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def may_mount() -> None:
    if subprocess.run(["unshare", "-Urm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount, as root or in a user namespace, to fill a disk")


@pytest.mark.long
@pytest.mark.usefixtures("library", "may_mount")
@pytest.mark.parametrize(("share", "points"), [(1000, 10), pytest.param(20, 20, marks=pytest.mark.slow)])
def test_job_on_a_full_disk_says_so_and_completes_when_there_is_room(share: int, points: int) -> None:
    result = faults("--share", str(share), "--parts", "disk")
    assert result["full_disk_points"] >= points
    assert {name: result[name] for name in FINDINGS} == dict.fromkeys(FINDINGS, 0)
    assert {"disk.model", "disk.index", "disk.evaluate", "disk.page", "disk.search"} <= result["landed"].keys()


PROGRAM = """
import json, os, sys
from pathlib import Path
from tests.faults.full_disk.preload import NoSpace

folder, other = Path(sys.argv[1]), Path(sys.argv[2])

def steps():
    (folder / "new").mkdir()                                  # 0
    with (folder / "file").open("wb", buffering=0) as file:   # 1
        file.write(b"1")                                      # 2
        os.posix_fallocate(file.fileno(), 0, 10)              # 3
        os.fsync(file.fileno())                               # 4
    os.rename(folder / "file", folder / "renamed")            # 5
    (folder / "renamed").read_bytes()
    (other / "file").write_bytes(b"1")

def attempt(call, once=False):
    failing = NoSpace(folder)
    failing.arm(call, once=once, error=28)
    try:
        steps()
        raised = None
    except OSError as error:
        raised = error.errno
    counts = failing.disarm()
    for path in folder.iterdir():
        path.rmdir() if path.is_dir() else path.unlink()
    return [raised, *counts]

print(json.dumps([attempt(None), *(attempt(call) for call in range(7))]))
"""


def test_preloaded_library_fails_the_calls_that_need_space(library: Path, tmp_path: Path) -> None:
    for name in ("disk", "other"):
        (tmp_path / name).mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "disk"), str(tmp_path / "other")],
        env={**os.environ, "LD_PRELOAD": str(library)}, cwd=Path(__file__).parents[2],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    undisturbed, *failing = json.loads(done.stdout)
    kinds = "mowafr"
    assert undisturbed == [None, kinds, 0]
    assert failing == [[28, kinds[: call + 1], 1] for call in range(6)] + [[None, kinds, 0]]
