"""docs/deploy.md and infra/machines: what can be checked without machines."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import yaml

from lsr_prod.config import Deployment
from lsr_prod.jobs.command import COMMANDS
from tests.infra.deploy.kubernetes import KUBERNETES
from tests.infra.deploy.machines import CLUSTER, ONE
from tests.infra.deploy.page import PAGE, START, blocks
from tests.infra.deploy.systemctl import _KNOWN

MACHINES = Path(__file__).parents[3] / "infra" / "machines"
UNITS = sorted([*MACHINES.glob("*.service"), *MACHINES.glob("*.timer")])


def shellcheck(*arguments: str, text: str | None = None) -> str:
    program = Path(sysconfig.get_path("scripts")) / "shellcheck"
    done = subprocess.run([program, *arguments], input=text, capture_output=True, text=True, check=False)
    return done.stdout


def test_every_block_of_the_page_is_run_by_a_section_of_the_deploy_test() -> None:
    found = blocks(PAGE.read_text())
    assert {block.language for block in found} == {"bash"}
    assert {block.section for block in found} == {START, KUBERNETES, CLUSTER, ONE}


def test_commands_outside_of_blocks_exist() -> None:
    named = set(re.findall(r"`lsr-prod ([a-z-]+)", PAGE.read_text()))
    assert "reindex" in named
    assert named <= {words.split()[0] for words in COMMANDS}


def test_shellcheck_finds_nothing_in_blocks_and_scripts() -> None:
    text = "\n".join(f"(\n{block.text})" for block in blocks(PAGE.read_text()))
    # The unquoted options of a store and the sourced file of a person are meant.
    assert (
        shellcheck("--shell=bash", "--exclude=SC1090,SC1091,SC2029,SC2030,SC2031,SC2086,SC2164", "-", text=text) == ""
    )
    assert shellcheck("--exclude=SC1090", str(MACHINES / "install.sh"), str(MACHINES / "lsr-run")) == ""


def test_installation_refuses_a_head_that_no_other_machine_reaches() -> None:
    command = ["sh", str(MACHINES / "install.sh"), "localhost"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("localhost is 127.0.0.1 here, which no other machine reaches: correct /etc/hosts, ")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units() -> None:
    done = subprocess.run(["systemd-analyze", "verify", *UNITS], capture_output=True, text=True, check=False)
    not_installed = re.compile(r"Command /opt/lsr-prod/bin/\S+ is not executable: No such file or directory")
    lines = [line for line in done.stderr.splitlines() if any(unit.name in line for unit in UNITS)]
    assert [line for line in lines if not not_installed.search(line)] == []


def test_units_have_only_settings_that_the_stand_in_of_systemctl_knows() -> None:
    assert len(UNITS) == 4
    for unit in UNITS:
        lines = unit.read_text().replace("\\\n", "").splitlines()
        assert {line.partition("=")[0] for line in lines if line and line[0] not in "#["} <= _KNOWN, unit


def test_ports_of_the_page_are_those_of_the_units() -> None:
    (sentence,) = re.findall(r"^6379 \(control store\).*$", PAGE.read_text(), re.MULTILINE)
    head = (MACHINES / "lsr-head.service").read_text()
    assert set(re.findall(r"-port=(\d+)", head)) == set(re.findall(r"\b\d{4,5}\b", sentence))


@pytest.mark.parametrize("name", ["cluster.yaml", "one-machine.yaml"])
def test_example_is_a_deployment_of_the_night(name: str) -> None:
    found = Deployment.model_validate(yaml.safe_load((MACHINES / name).read_text()))
    assert found.encode is not None
    assert found.index is not None
    assert found.evaluate is not None
    assert (found.index.table, found.index.bundle) == (found.encode.table, found.encode.bundle)
    assert found.evaluate.index == found.index.output
