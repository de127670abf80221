"""``ray job submit`` on a cluster: an encode job gives the table of a direct run, a training chain succeeds."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.config import Deployment
from lsr_prod.encoding import encode_corpus
from tests.e2e.conftest import Head, small_chain
from tests.e2e.test_train_job import check_trained, result
from tests.listeners import kinds, listeners

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def submit(job: str, settings: dict[str, Any], folder: Path, environment: dict[str, str], head: Head) -> str:
    """Submit a job, wait for its end and return what it printed."""
    config = folder / "deployment.yaml"
    config.write_text(json.dumps(settings))
    command = [str(BIN / "ray"), "job", "submit", "--address", head.dashboard, "--working-dir", ".", "--"]
    command += [sys.executable, f"jobs/{job}.py", "--config", str(config)]
    for _ in range(20):
        done = subprocess.run(
            command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=400
        )
        if "No available agent" not in done.stderr:
            break
        time.sleep(3)  # the dashboard answers before the agent of the node does
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded" in done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_submitted_job_gives_table_digest_of_direct_run(
    tmp_path: Path, tiny_bundle: Path, environment: dict[str, str], head: Head, ray_local: None
):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("".join(json.dumps({"_id": f"d{i}", "text": f"quick fox {i}"}) + "\n" for i in range(50)))

    def settings(table: str) -> dict[str, Any]:
        encode = {"bundle": str(tiny_bundle), "table": str(tmp_path / table), "buckets": 2}
        return {"source": {"paths": [str(corpus)]}, "encode": encode, "ray": {}}

    submitted = result(submit("encode", settings("submitted"), tmp_path, environment, head))["table_digest"]
    assert submitted == encode_corpus(Deployment.model_validate(settings("direct"))).table_digest
    found = kinds(listeners(head.pid))
    assert found >= {"control store", "scheduler", "dashboard", "agents", "server of Ray clients"}, found


@pytest.mark.slow
def test_submitted_chain_succeeds(tmp_path: Path, environment: dict[str, str], head: Head) -> None:
    settings = small_chain(tmp_path)
    check_trained(submit("train", settings, tmp_path, environment, head), settings)
