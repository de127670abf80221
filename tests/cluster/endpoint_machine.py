"""The machine with the S3 endpoint, and what programs on other machines need to reach it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.cluster.namespaces import ROOT, Machine, Network

__all__ = ["BIN", "BUCKET", "EndpointMachine", "result"]

BIN = Path(sys.executable).parent
BUCKET = "lsr"
_PORT = 9000


class EndpointMachine:
    """An S3 endpoint with one bucket on a machine of its own.

    Attributes:
        options: ``storage.options`` of a deployment.
        environment: variables of every program that uses it.
    """

    def __init__(
        self, network: Network, logs: Path, options: list[str] | None = None, server: str = "tests.s3_endpoint"
    ) -> None:
        """Start the endpoint.

        Args:
            network: where the machine is added.
            logs: folder of this computer for its output.
            options: further options of the server.
            server: the module that runs it, ``tests.s3_endpoint`` or ``tests.objectstore.ceph``.
        """
        self._machine, self._log = network.add("store"), logs / "store.log"
        endpoint = [sys.executable, "-m", server, str(_PORT), "--host", self._machine.address]
        # moto takes the first part of a host name for a bucket.
        environment = {"PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "S3_IGNORE_SUBDOMAIN_BUCKETNAME": "true"}
        self._machine.start([*endpoint, *(options or [])], environment, log=self._log)
        self.options = {
            "aws_endpoint": f"http://{self._machine.address}:{_PORT}",
            "aws_region": "us-east-1",
            "allow_http": "true",
        }
        self.environment = {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "HF_HUB_OFFLINE": "1",
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "TOKENIZERS_PARALLELISM": "false",
        }

    def run(self, machine: Machine, script: str, timeout_s: float = 300) -> str:
        """Run Python code on a machine, with ``store`` (the bucket) and ``boto``; returns what it prints."""
        head = (
            "import sys, json, boto3\n"
            "from pathlib import Path\n"
            "from lsr_prod.storage import Store\n"
            f"options = json.loads({json.dumps(self.options)!r})\n"
            f"store = Store('s3://{BUCKET}', options)\n"
            "boto = boto3.client('s3', endpoint_url=options['aws_endpoint'], region_name='us-east-1')\n"
        )
        done = machine.run([sys.executable, "-c", head + script], self.environment, timeout_s=timeout_s)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create_bucket(self, machine: Machine) -> None:
        """Wait until the endpoint answers, and create the bucket."""
        for _ in range(120):
            try:
                self.run(machine, f"boto.create_bucket(Bucket='{BUCKET}')")
            except AssertionError:
                time.sleep(0.5)
            else:
                return
        raise TimeoutError(self._log.read_text())

    def names(self, machine: Machine, prefix: str) -> list[str]:
        """Return the names of the objects below a folder of the bucket."""
        return list(json.loads(self.run(machine, f"print(json.dumps(store.names({prefix!r})))")))


def result(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """Return the figures of a job that succeeded."""
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return dict(json.loads(line.removeprefix("RESULT ")))
