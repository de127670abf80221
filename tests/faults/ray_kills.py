"""Encode jobs on a local cluster with SIGKILL for actors, workers, raylets and drivers, while tables are maintained.

Every table follows the states of a source: a first encode, then increments. After every state its contents and its
digest must be those of a run without kills.
"""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lsr_prod.encoding import table_digest
from lsr_prod.operations.maintenance import compact, vacuum
from tests.faults.attempts import ROOT
from tests.faults.chain import SourceChain
from tests.faults.cluster import LocalCluster, kill
from tests.faults.oracle import Findings, Vectors, inspect, vectors
from tests.faults.protocol import Job

__all__ = ["VICTIMS", "RayKills"]

VICTIMS = ("actor", "worker", "raylet", "driver")
_PATIENCE = 60  # seconds until a process of the kind is found
_STATES = 3  # of the source, one after the other for every table
_TARGET_BYTES = 1_000_000  # of a compacted part
_RETENTION_S = 3600.0


class RayKills:
    """Runs jobs and kills their processes.

    Args:
        cluster: runs the jobs.
        folder: of tables and logs.
        bundle: the encoder.
        chain: states of the source.
        rng: of the choice of processes and moments.
    """

    def __init__(
        self, cluster: LocalCluster, folder: Path, bundle: Path, chain: SourceChain, rng: random.Random
    ) -> None:
        self._cluster, self._folder, self._bundle, self._chain, self._rng = cluster, folder, bundle, chain, rng
        self._tables = 0
        self._baseline: list[tuple[str, Vectors]] = []
        self._driver: subprocess.Popen[str] | None = None
        self.landed: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self.findings = Findings()

    def run(self, victims: Sequence[str]) -> None:
        """Run the jobs once without kills, then kill each of the victims; check every finished state."""
        for _ in range(_STATES):
            self._next_job()
            self._settle()
        for victim in victims:
            while not self._kill(victim):
                self._settle()
        while self._driver is not None:
            self._settle()

    def _next_job(self) -> None:
        """Start the job for the next state of the source, or for a new table."""
        if self._tables == 0 or self._state == _STATES - 1:
            self._tables += 1
            self._state = 0
        else:
            self._state += 1
        table = str(self._folder / f"ray-{self._tables}")
        self._job = Job(self._chain.place(self._folder / "source", self._state), table, {})
        encode = {"bundle": str(self._bundle), "table": table, "wave_megabytes": 1, "slice_megabytes": 1}
        sections = {
            "ray": {"address": self._cluster.address},
            "source": {"paths": list(self._job.paths), "text_fields": ["text"], "stored_fields": []},
            "encode": {**encode, "buckets": 4, "max_bad_fraction": 0.5, "probe_documents": 4},
        }
        self._config = self._folder / "ray.yaml"
        self._config.write_text(json.dumps(sections))
        self._start()

    def _start(self) -> None:
        command = [sys.executable, str(ROOT / "jobs" / "encode.py"), "--config", str(self._config)]
        with (self._folder / "ray.log").open("a") as log:
            self._driver = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, process_group=0
            )

    def _settle(self) -> None:
        """Wait for the end of the driver; check its table and start a new one, or restart the driver."""
        assert self._driver
        output, _ = self._driver.communicate(timeout=600)
        code = self._driver.returncode
        self.runs[{0: "finished", -9: "killed"}.get(code, "failed")] += 1
        if self.runs["failed"] > 40:
            raise RuntimeError(f"more than 40 jobs failed; see {self._folder / 'ray.log'}")
        if code:
            self._start()
            return
        self._check(json.loads(output.rpartition("RESULT ")[2]))
        self._driver = None

    def _check(self, summary: dict[str, Any]) -> None:
        if len(self._baseline) <= self._state:
            self._baseline.append((table_digest(summary["table"]), vectors(self._job)))
        digest, expected = self._baseline[self._state]
        corpus = self._chain.expected(range(self._state + 1))
        found = inspect(self._job, corpus, expected, finished=True)
        changed = table_digest(summary["table"]) != digest
        found.note("wrong", int(changed), f"state {self._state} has another table digest than without kills")
        off = abs(summary["rows_in"] - summary["rows_out"] - summary["quarantined"])
        found.note("lost", off, "rows_in is not rows_out + quarantined")
        if self._state == 0:
            off = abs(summary["rows_in"] - len(corpus.rows))
            found.note("lost", off, "rows_in is not the number of rows of the corpus")
        self.findings.add(found)

    def _kill(self, victim: str) -> bool:
        """Kill a process of this kind at a random moment; return False if the driver ended before."""
        if self._driver is None:
            self._next_job()
        time.sleep(self._rng.uniform(0.1, 2.5))
        pid = self._await(victim)
        if pid is None or not kill(pid):
            return False
        self.landed[victim] += 1
        print(f"ray: {victim} killed, {self.landed.total()} kills, {dict(self.runs)}", flush=True)
        if victim == "raylet":
            time.sleep(0.2)
        self._cluster.replace_dead()
        if victim == "driver":
            self._settle()
        self._look()
        return True

    def _await(self, victim: str) -> int | None:
        assert self._driver
        finders = {"actor": self._cluster.actors, "worker": self._cluster.workers, "raylet": self._cluster.raylets}
        deadline = time.monotonic() + _PATIENCE
        while self._driver.poll() is None and time.monotonic() < deadline:
            # A driver or a raylet is killed at any moment after the plan was written.
            begun = Path(self._job.table, "_lsr_prod").exists()
            found = ([self._driver.pid] if victim == "driver" else finders[victim]()) if begun else []
            if found:
                return self._rng.choice(sorted(found))
            time.sleep(0.01)
        return None

    def _look(self) -> None:
        """Check the tables of the running job, and sometimes maintain them meanwhile."""
        table, _ = self._job.stores
        if self._rng.random() < 0.3 and Path(table.uri, "_delta_log").exists():
            compact(table, _TARGET_BYTES)
            vacuum(table, _RETENTION_S)
            self.runs["maintained"] += 1
        before = self._chain.expected(range(self._state)) if self._state else None
        _, expected = self._baseline[self._state]
        if self._state:
            _, old = self._baseline[self._state - 1]
            expected = {
                name: expected.get(name, frozenset()) | old.get(name, frozenset()) for name in {*expected, *old}
            }
        corpus = self._chain.expected(range(self._state + 1))
        self.findings.add(inspect(self._job, corpus, expected, finished=False, before=before))
