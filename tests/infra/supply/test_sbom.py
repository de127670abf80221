"""The bill of materials of an image names what its lock installs."""

import json
import subprocess

import pytest

from infra.supply.locks import ROOT, locked
from infra.supply.sbom import requirements
from tests.infra.supply.environment import PYTHON, needs_tools


@pytest.mark.parametrize(("python", "version"), [("3.11", "1.3.1"), ("3.12", "3.0.1")])
def test_lines_of_a_lock_are_those_of_the_image_and_its_python(python, version):
    lines = [line for line in requirements("jobs", python).splitlines() if "==" in line]
    assert [line.split()[0] for line in lines if line.startswith("deprecated==")] == [f"deprecated=={version}"]
    assert not [line for line in lines if line.startswith("colorama==")]
    assert [line for line in lines if line.startswith("ray==")]


@needs_tools
def test_bill_names_packages_with_hashes_and_licenses():
    code = "import json; from infra.supply.sbom import bill; print(json.dumps(bill('search', '3.11')))"
    done = subprocess.run([PYTHON, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    packages = {(one["name"], one["version"]) for one in found["components"]}
    assert packages < locked("search")
    assert {name for name, _ in packages} == {name for name, _ in locked("search")}
    assert all(one["licenses"][0]["expression"] for one in found["components"])
    assert all(one["externalReferences"][0]["hashes"] for one in found["components"])
    assert found["metadata"]["component"]["name"] == "lsr_prod-search"
    assert len(found["dependencies"][0]["dependsOn"]) == len(packages)
