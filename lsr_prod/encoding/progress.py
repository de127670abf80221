"""Progress of the job and its remaining time: a bar on a terminal, and one log line per wave."""

import logging
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

__all__ = ["Progress"]

log = logging.getLogger(__name__)


class Progress:
    """Progress over the waves of a plan. Use as a context manager."""

    def __init__(self, waves: int, done: int) -> None:
        """Start with ``done`` of ``waves`` waves committed."""
        self._waves, self._first = waves, done
        self._committed = done
        self._shares: dict[int, float] = {}  # wave that is not committed -> its share that is encoded
        self._started = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
        console = Console(stderr=True)
        self._bar = Bar(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not sys.stderr.isatty()
        )
        self._task = self._bar.add_task("encode", total=waves, completed=done)

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def start_wave(self, wave: int) -> None:
        """Show the start of a wave, or of another attempt at it."""
        self._shares[wave] = 0.0
        self._bar.update(self._task, completed=self._position, description=f"wave {wave + 1}/{self._waves}")

    def block(self, wave: int, share: float) -> None:
        """Show an encoded block.

        Args:
            wave: number of its wave.
            share: share of the wave that the block is.
        """
        self._shares[wave] = self._shares.get(wave, 0.0) + share
        self._bar.update(self._task, completed=self._position)

    def committed(self, wave: int, documents: int, quarantined: int, commit_s: float) -> None:
        """Show and log a committed wave."""
        self._committed = wave + 1
        self._shares.pop(wave, None)
        self._bar.update(self._task, completed=self._position)
        fields = {
            "wave": wave + 1,
            "of": self._waves,
            "documents": documents,
            "quarantined": quarantined,
            "commit_s": round(commit_s, 3),
            "eta_s": round(self.eta_s),
        }
        log.info("wave committed", extra={"fields": fields})

    @property
    def _position(self) -> float:
        """Committed waves, and the shares of the others that are encoded."""
        return self._committed + sum(list(self._shares.values()))

    @property
    def eta_s(self) -> float:
        """Estimated remaining seconds at the speed of this run so far."""
        mine = self._position - self._first
        return (self._waves - self._position) * (time.monotonic() - self._started) / mine if mine > 0 else 0.0
