"""Machines see the checkout and Python wherever they are, and one that cannot be made leaves nothing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import namespaces
from tests.cluster.namespaces import Network, missing, network

pytestmark = [pytest.mark.root, pytest.mark.skipif(bool(missing()), reason=missing())]


def spaces() -> set[str]:
    """Names of the network namespaces of this computer that tests made."""
    found = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    return {line.split()[0] for line in found.splitlines() if line.startswith("lsr")}


@pytest.mark.parametrize("parent", ["/tmp", "/var/tmp", "/dev/shm"])
def test_checkout_in_a_folder_of_temporary_files_is_on_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parent: str
) -> None:
    place = Path(parent) / f"lsr {tmp_path.name} é"
    (place / "lsr_prod").mkdir(parents=True)
    for name in ("file", "lsr_prod/module.py"):
        (place / name).write_text("of the checkout\n")
    monkeypatch.setattr(namespaces, "ROOT", place)
    try:
        with network() as machines:
            machines.hidden = [place / "lsr_prod"]
            machine = machines.add("one")
            script = 'cat "$1/file"; ls "$1/lsr_prod"; ls -A "$2"; touch "$1/new" 2> /dev/null || touch "$2/new"'
            done = machine.run(["sh", "-c", script, "sh", str(place), parent])
            assert done.returncode == 0, done.stderr
            environment = Path(sys.prefix)  # below a folder of temporary files too, if the checkout of this test is
            kept = {environment.relative_to(parent).parts[0]} if environment.is_relative_to(parent) else set()
            shown = set(done.stdout.splitlines()) - {"home", "empty", *kept}
            assert shown == {"of the checkout", place.name}
            assert machine.run([sys.executable, "-c", "import ray"]).returncode == 0
    finally:
        shutil.rmtree(place)
    assert not (Path(parent) / "new").exists()


def test_machine_that_cannot_be_made_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = spaces()
    monkeypatch.setattr(namespaces, "_SETUP", "echo {name} {kept} {hidden} > /dev/null; echo no room >&2; exit 1")
    with pytest.raises(AssertionError, match="could not be set up: no room"), network() as machines:
        machines.add("one")
    assert spaces() - before == set()


def test_machine_that_cannot_be_removed_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise RuntimeError("it cannot be killed")

    before, machines = spaces(), Network()
    machines.add("one")
    machines.attach_host()
    monkeypatch.setattr(machines.add("two"), "kill", fail)
    with pytest.raises(RuntimeError, match="cannot be killed"):
        machines.close()
    assert spaces() - before == set()
    links = subprocess.run(["ip", "link"], check=True, capture_output=True, text=True).stdout
    assert f"{machines.name}-h" not in links
