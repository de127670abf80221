"""Encode jobs on a local cluster with SIGKILL for actors, workers, raylets and drivers."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults.attempts import ROOT
from tests.faults.cluster import LocalCluster, kill
from tests.faults.corpus import Corpus
from tests.faults.oracle import Findings, inspect
from tests.faults.protocol import Job

__all__ = ["VICTIMS", "RayKills"]

VICTIMS = ("actor", "worker", "raylet", "driver")
_PATIENCE = 60  # seconds until a process of the kind is found


class RayKills:
    """Runs jobs and kills their processes.

    Args:
        cluster: runs the jobs.
        folder: of tables and logs.
        bundle: the encoder.
        corpus: of several waves.
        rng: of the choice of processes and moments.
    """

    def __init__(self, cluster: LocalCluster, folder: Path, bundle: Path, corpus: Corpus, rng: random.Random) -> None:
        self._cluster, self._folder, self._bundle, self._corpus, self._rng = cluster, folder, bundle, corpus, rng
        self._tables = 0
        self._digests: set[str] = set()
        self._driver: subprocess.Popen[str] | None = None
        self.landed: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self.findings = Findings()

    def run(self, victims: Sequence[str]) -> None:
        """Kill each of the kinds once, then let the last job finish; check every finished table."""
        self._new_table()
        for victim in victims:
            while not self._kill(victim):
                self._settle()
        while self._driver is not None:
            self._settle()

    def _new_table(self) -> None:
        self._tables += 1
        self._job = Job(self._corpus.paths, str(self._folder / f"ray-{self._tables}"), "delta", {})
        encode = {"bundle": str(self._bundle), "table": self._job.table, "wave_megabytes": 1, "slice_megabytes": 1}
        sections = {
            "ray": {"address": self._cluster.address},
            "source": {"paths": list(self._corpus.paths), "text_fields": ["text"], "stored_fields": []},
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
        found = inspect(self._job, self._corpus, {}, finished=True)
        self._digests.add(summary["table_digest"])
        found.note("wrong", len(self._digests) - 1, "tables of one corpus have different digests")
        off = abs(summary["rows_in"] - summary["rows_out"] - summary["quarantined"])
        found.note("lost", off, "rows_in is not rows_out + quarantined")
        found.note(
            "lost", abs(summary["rows_in"] - len(self._corpus.rows)), "rows_in is not the number of rows of the corpus"
        )
        self.findings.add(found)

    def _kill(self, victim: str) -> bool:
        """Kill a process of this kind at a random moment; return False if the driver ended before."""
        if self._driver is None:
            self._new_table()
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
        self.findings.add(inspect(self._job, self._corpus, {}, finished=False))
