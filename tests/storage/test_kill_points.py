"""Killed at any change of the disk, a protocol of caches and drafts completes when it runs again, also without root."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick import first_quick
from tests.storage.kill_points import PROTOCOLS


@pytest.mark.parametrize("name", first_quick(PROTOCOLS))
def test_protocol_completes_after_a_kill_at_any_change(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-m", "tests.storage.kill_points", name, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3
