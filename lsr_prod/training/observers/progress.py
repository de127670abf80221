"""Progress of a stage, sent by its first worker and shown by the driver."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lsr_prod import errors, logs

log = logs.get_log(__name__)

_EVERY_S = 1.0
_LOGGED_PARTS = 20


class _Progress:
    """Actor that keeps the last progress of the first worker, its news, and the error that must end the stage."""

    def __init__(self) -> None:
        self._last: tuple[int, int, float] | None = None
        self._news: list[tuple[str, dict[str, Any]]] = []
        self._ended: errors.LsrError | None = None

    def show(self, step: int, steps: int, loss: float) -> None:
        """Store the progress; called by the first worker."""
        self._last = (step, steps, loss)

    def tell(self, event: str, fields: dict[str, Any]) -> None:
        """Store a line for the log of the driver; called by the first worker."""
        self._news.append((event, fields))

    def news(self, known: int) -> list[tuple[str, dict[str, Any]]]:
        """Return the lines after the first ``known``."""
        return self._news[known:]

    def last(self) -> tuple[int, int, float] | None:
        """Return step, steps and loss of the last call of ``show``."""
        return self._last

    def end(self, error: errors.LsrError) -> None:
        """Store an error that would only be repeated; called by the worker that met it."""
        self._ended = self._ended or error

    def ended(self) -> errors.LsrError | None:
        """Return the error of the first call of ``end``; None: the stage has to be trained."""
        return self._ended


@contextmanager
def shown_progress(title: str) -> Iterator[Any]:
    """Yield an actor for progress, and show it: a bar on a terminal, otherwise some log lines."""
    progress: Any = ray.remote(num_cpus=0)(_Progress).remote()
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(progress, title, ended), daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join()
        ray.kill(progress)


def _follow(progress: Any, title: str, ended: threading.Event) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, *times, console=Console(stderr=True), disable=not sys.stderr.isatty())
    logged, told = -1, 0
    with bar:
        task = bar.add_task(title, total=None)
        last_look = False
        while not last_look:
            last_look = ended.wait(_EVERY_S)
            try:
                news, last = ray.get([progress.news.remote(told), progress.last.remote()])
            except ray.exceptions.RayError:
                return  # the connection ends with the job
            for event, fields in news:
                log.info(event, extra={"fields": {"stage": title, **fields}})
            told += len(news)
            if last is None:
                continue
            step, steps, loss = last
            bar.update(task, total=steps, completed=step, description=f"{title} loss {loss:.3f}")
            if step * _LOGGED_PARTS // steps != logged:
                logged = step * _LOGGED_PARTS // steps
                log.info("training", extra={"fields": {"stage": title, "step": step, "of": steps, "loss": loss}})
