"""Tests have the rights of an ordinary user, also if root runs them."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.rights import as_ordinary_user, why_not_root


def rights() -> int:
    """Effective rights of a program that this thread starts."""
    found = subprocess.run(["grep", "CapEff", "/proc/self/status"], check=True, capture_output=True, text=True).stdout
    return int(found.split()[1], 16)


def test_closed_file_is_not_read_by_this_thread_a_thread_or_a_program(tmp_path: Path) -> None:
    path = tmp_path / "closed"
    path.write_text("text")
    path.chmod(0)
    with pytest.raises(PermissionError):
        path.read_text()
    with ThreadPoolExecutor(1) as pool, pytest.raises(PermissionError):
        pool.submit(path.read_text).result()
    assert subprocess.run(["cat", str(path)], check=False, capture_output=True).returncode == 1


@pytest.mark.root
def test_user_namespace_can_be_made_as_by_other_users() -> None:
    command = ["unshare", "-Ur", "id", "-u"]
    expected = subprocess.run(command, check=False, capture_output=True, text=True)
    with as_ordinary_user():
        made = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (made.stdout, made.stderr) == (expected.stdout, expected.stderr)


@pytest.mark.root
def test_rights_of_root_come_back(tmp_path: Path) -> None:
    before = rights()
    with as_ordinary_user():
        assert why_not_root() != ""
        assert rights() & before != before
        with as_ordinary_user():
            assert os.geteuid() == 0
    assert why_not_root() == ""
    assert rights() == before
