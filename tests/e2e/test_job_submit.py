"""``ray job submit`` on a cluster gives the same table as a direct run, and opens nothing beyond loopback."""

import json
import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import Head
from tests.listeners import kinds, listeners

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def test_submitted_job_gives_table_digest_of_direct_run(
    tmp_path: Path, tiny_bundle: Path, environment: dict[str, str], head: Head
):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("".join(json.dumps({"_id": f"d{i}", "text": f"quick fox {i}"}) + "\n" for i in range(50)))
    digests = []
    job = [sys.executable, "jobs/encode.py", "--config"]
    submit = [str(BIN / "ray"), "job", "submit", "--address", head.dashboard, "--working-dir", ".", "--", *job]
    for name, command in (("direct", job), ("submitted", submit)):
        config = tmp_path / f"{name}.yaml"
        encode = {"bundle": str(tiny_bundle), "table": str(tmp_path / name), "buckets": 2}
        config.write_text(json.dumps({"source": {"paths": [str(corpus)]}, "encode": encode, "ray": {}}))
        done = subprocess.run(
            [*command, str(config)], cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
        digests.append(json.loads(line.removeprefix("RESULT "))["table_digest"])
    assert "succeeded" in done.stdout + done.stderr
    assert digests[0] == digests[1]
    found = kinds(listeners(head.pid))
    assert found >= {"control store", "scheduler", "dashboard", "agents", "server of Ray clients"}, found
