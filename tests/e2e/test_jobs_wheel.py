"""The wheel with ``[cpu,jobs]`` in an empty environment encodes, indexes and searches without a checkout."""

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEXTS = {
    "lock": "A lock is released by the thread that holds it.",
    "json": "Parse a JSON string into a Python object.",
    "sqrt": "Return the square root of a number.",
}


def run(*command: object, cwd: Path, expected: int = 0, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``lsr-prod`` of an environment with the wheel and its dependencies at the locked versions."""
    folder = tmp_path_factory.mktemp("jobs")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("lsr_prod-*.whl")
    # Versions and markers of the lock, without extras and hashes: a constraint has neither.
    locked = re.findall(
        r"^([\w.-]+)(?:\[.*?\])?(==.*?)(?: \\)?$", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE
    )
    (folder / "constraints.txt").write_text("\n".join(map("".join, locked)))
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    install = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", folder / "constraints.txt")
    run(*install, f"{wheel}[cpu,jobs]", cwd=folder)
    return python.with_name("lsr-prod")


@pytest.mark.slow
def test_wheel_encodes_indexes_and_searches_without_checkout(command: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    assert run(command, "encode", "--help", cwd=tmp_path).stdout.startswith("usage: lsr-prod encode --config FILE")
    rows = (json.dumps({"_id": name, "text": text}) + "\n" for name, text in TEXTS.items())
    (tmp_path / "corpus.jsonl").write_text("".join(rows))
    deployment = {
        "ray": {"num_cpus": 2},
        "source": {"paths": ["corpus.jsonl"], "text_fields": ["text"], "stored_fields": ["text"]},
        "encode": {"bundle": str(tiny_bundle), "table": "table", "buckets": 2},
        "index": {"table": "table", "bundle": str(tiny_bundle), "output": "index", "text_fields": ["text"]},
    }
    (tmp_path / "deployment.yaml").write_text(yaml.safe_dump(deployment))
    for job, documents in (("encode", "documents"), ("index build", "documents")):
        done = run(command, *job.split(), "--config", "deployment.yaml", cwd=tmp_path)
        result = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULT "))
        assert result[documents] == len(TEXTS)
    found = run(command, "search", "index", cwd=tmp_path, stdin="how do threads share a lock\n").stdout
    assert re.search(r"^ +1\. +[\d.]+  lock ", found, re.MULTILINE), found
    refused = run(command, "model", "bert", "model", cwd=tmp_path, expected=2)
    assert refused.stderr.startswith("lsr-prod model: ")
    assert refused.stderr.endswith("install it with: pip install 'lsr_prod[train]'\n")
