"""One training with two workers on a Ray of its own: started, watched, killed in part or as a whole, started again."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from lsr_prod.cluster.session import own_folder
from tests.faults.attempts import ROOT

__all__ = ["MOMENTS", "VICTIMS", "Training"]

VICTIMS = ("worker", "controller", "job")
MOMENTS = ("step", "checkpoint", "validation")
_TITLES = {"worker": "RayTrainWorker", "controller": "TrainController"}
_SIGNS = {"checkpoint": "tmp*/checkpoint-*", "validation": "tmp*/lsr-scratch-*"}
_PATIENCE = 240  # seconds until a moment comes


class Training:
    """The processes of one training.

    Args:
        settings: the deployment.
        folder: for scratch files, logs and the settings.
    """

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        self._folder, self._scratch = folder, folder / "scratch"
        self._scratch.mkdir(parents=True, exist_ok=True)
        self._settings = folder / "settings.json"
        self._settings.write_text(json.dumps(settings))
        self._work = Path(settings["train"]["work"])
        self._driver: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the job, or start it again."""
        command = [sys.executable, "-m", "tests.faults.training.driver", str(self._settings)]
        # Ray's own files stay out of the scratch folder: paths of sockets have to be short.
        places = {"TMPDIR": str(self._scratch), "RAY_TMPDIR": str(own_folder())}
        environment = {**os.environ, **places, "OMP_NUM_THREADS": "1"}
        with (self._folder / "log").open("a") as log:
            self._driver = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def finish(self) -> dict[str, Any] | None:
        """Wait for the end; the summary, or None: the job was killed.

        Raises:
            RuntimeError: it failed.
        """
        assert self._driver is not None
        output, _ = self._driver.communicate(timeout=600)
        if self._driver.returncode == 0:
            summary: dict[str, Any] = json.loads(output.splitlines()[-1])
            return summary
        if self._driver.returncode == -signal.SIGKILL:
            return None
        log = (self._folder / "log").read_text()[-4000:]
        raise RuntimeError(f"the job ended with {self._driver.returncode}:\n{log}")

    def kill(self, victim: str, moment: str, rng: random.Random) -> bool:
        """SIGKILL at a moment that the disk shows; False: the job ended before it came."""
        assert self._driver is not None
        deadline, since, old = time.monotonic() + _PATIENCE, self._last_step(), self._signs(moment)
        pids: list[int] = []
        while self._driver.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {victim} was seen in a {moment}")
            if self._last_step() <= since:
                time.sleep(0.05)  # a start takes long, and longer beside one who looks all the time
                continue
            if not pids or not all(map(psutil.pid_exists, pids)):
                pids = self._victims(victim)
            if pids and (moment == "step" or self._signs(moment) - old):
                time.sleep(rng.uniform(0, 0.004))
                return self._strike(victim, rng.choice(pids))
            time.sleep(0.001)
        return False

    def until_saved(self, patience: float) -> int:
        """Wait for the first checkpoint; its step."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            for record in self._work.glob("runs/*/checkpoint_*/checkpoint.json"):
                with contextlib.suppress(ValueError, FileNotFoundError):
                    return int(json.loads(record.read_text())["step"])
            time.sleep(0.05)
        raise TimeoutError("no checkpoint was written")

    def damage(self, rng: random.Random) -> None:
        """Leave what a kill can leave, whether this one did or not: half a list of checkpoints, half a checkpoint."""
        for run in self._work.glob("runs/*"):
            half = run / "checkpoint_9999-12-31_00-00-00.000000"
            half.mkdir(exist_ok=True)
            (half / "weights.safetensors").write_bytes(b"half")
            for snapshot in run.glob("checkpoint_manager_snapshot.json"):
                content = snapshot.read_bytes()
                snapshot.write_bytes(content[: rng.randrange(len(content))])

    def stop(self) -> None:
        """End everything that is left of it."""
        for process in self._processes():
            _send(process.pid)

    def _strike(self, victim: str, pid: int) -> bool:
        if victim != "job":
            return _send(pid)
        processes = self._processes()  # Ray's leave the driver's process group, so all are named
        return [_send(process.pid) for process in processes].count(True) > 0

    def _victims(self, victim: str) -> list[int]:
        if victim == "job":
            assert self._driver is not None
            return [self._driver.pid]
        found = []
        for process in self._processes():
            try:
                title = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if title.startswith("ray::") and _TITLES[victim] in title:
                found.append(process.pid)
        return found

    def _processes(self) -> list[psutil.Process]:
        """The driver and all below it; the driver last, so that none is lost sight of."""
        assert self._driver is not None
        if self._driver.returncode is not None:
            return []  # its number may be another's by now
        try:
            driver = psutil.Process(self._driver.pid)
            return [*reversed(driver.children(recursive=True)), driver]
        except psutil.NoSuchProcess:
            return []

    def _signs(self, moment: str) -> set[Path]:
        """What stands on the disk in such a moment; a kill leaves some of it for ever."""
        if moment == "step":
            return set()
        signs = set(self._scratch.glob(_SIGNS[moment]))
        if moment == "checkpoint":
            uploads = self._work.glob("runs/*/checkpoint_*")
            signs |= {folder for folder in uploads if not (folder / "checkpoint.json").exists()}
        return signs

    def reports(self) -> list[dict[str, Any]]:
        """What the run reported so far."""
        return [json.loads(line) for line in self._lines() if line.endswith("}}")]

    def _last_step(self) -> int:
        """The last step that was reported, or 0; after a kill the run starts again behind it."""
        whole = [line for line in self._lines()[-2:] if line.endswith("}}")]
        return int(json.loads(whole[-1])["step"]) if whole else 0

    def _lines(self) -> list[str]:
        files = list(self._work.glob("runs/*/steps.jsonl"))
        return files[0].read_text().splitlines() if files else []


def _send(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
