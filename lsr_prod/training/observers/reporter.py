"""What a run reports, and to whom: a JSONL log, Ray's metrics, TensorBoard and MLflow."""

import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lsr_prod.config.train import WatchSettings
from lsr_prod.errors import ConfigError, StorageError
from lsr_prod.storage.drafts import append_file, write_file
from lsr_prod.training.observers.trackers import check_watch, open_trackers

__all__ = ["Reporter", "read_log"]

Values = Mapping[str, float | None]


class Reporter:
    """Takes the values of a step to the log and to all trackers. One a run, in the process of rank 0.

    The log has one line a report: ``{"step": 120, "time": 1.7e9, "values": {"loss": 0.5, ...}}``; ``time`` is seconds
    since 1970, and a value that is no number is the string ``nan``, ``inf`` or ``-inf``. After a resumption it is as if
    the run had never stopped: every step stands once. TensorBoard leaves out what is repeated; MLflow, which cannot
    delete, keeps both.

    A tracker that fails while the run goes on is logged, left out for a while, then tried again: no run ends by it.
    """

    def __init__(self, path: Path, settings: WatchSettings, *, run: str, resumed_at: int | None = None) -> None:
        """Open the log and the trackers.

        Args:
            path: the JSONL file; its folder is made.
            settings: ``tensorboard`` and ``mlflow``.
            run: name of the run: the folder in TensorBoard's, the run in MLflow, a tag of Ray's metrics.
            resumed_at: the step of the checkpoint that the run goes on from; lines of later steps are cut off. None: a
                new run, an old log is emptied.

        Raises:
            ConfigError: a tracker is not installed, or refuses a new run.
            StorageError: the log cannot be written.
        """
        if not re.fullmatch(r"[\w-][\w.-]*", run):
            raise ValueError(f"the run {run!r} is to be made of letters, digits, '_', '-' and, after the first, '.'")
        check_watch(settings)
        _cut(path, resumed_at)
        self._file = append_file(path)
        self._path = path
        try:
            self._trackers = open_trackers(settings, run, resumed_at)
        except ConfigError:
            self._file.close()
            raise

    def report(self, step: int, values: Values) -> None:
        """Report a step.

        Args:
            step: rises from report to report.
            values: by name, such as ``loss`` or ``validation/RR@10``; None: unknown this time, in the log only.

        Raises:
            StorageError: the log cannot be written.
        """
        now = time.time()
        line = {"step": step, "time": now, "values": {name: _plain(value) for name, value in values.items()}}
        try:
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written ({error}); mend the disk, then run again") from error
        known = {name: float(value) for name, value in values.items() if value is not None}
        for tracker in self._trackers:
            tracker.report(step, known, now)

    def close(self, *, failed: bool = False) -> None:
        """End the trackers and close the log; MLflow is told whether the run failed."""
        for tracker in self._trackers:
            tracker.close(failed=failed)
        self._trackers = []
        self._file.close()

    def __enter__(self) -> Self:
        """The reporter itself; it is closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; an error that passes through is a failed run."""
        self.close(failed=error is not None)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The reports of a log, by rising step; a last line that was cut short by a killed process is left out."""
    reports = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            report = json.loads(line)
        except json.JSONDecodeError:
            break
        reports.append(report)
    return reports


def _cut(path: Path, resumed_at: int | None) -> None:
    """Keep the lines up to a step; the file is replaced whole."""
    if not path.exists():
        return
    kept = [] if resumed_at is None else [report for report in read_log(path) if report["step"] <= resumed_at]
    write_file(path, "".join(json.dumps(report) + "\n" for report in kept).encode())


def _plain(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(float(value))
