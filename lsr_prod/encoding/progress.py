"""Progress of the encode job: a bar on a terminal; elsewhere a log line every 30 s, also while no block finishes.

The share that is done is counted in source bytes of finished cells, because waves overlap. The remaining time follows
from the speed of the last five minutes.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from lsr_prod.encoding.actors.pool import PoolActivity
from lsr_prod.encoding.results import BlockResult
from lsr_prod.logs import get_log

log = get_log(__name__)

_LINE_S = 30.0  # between two log lines
_SAMPLE_S = 1.0
_RATE_S = 60.0  # of the rates that are shown
_ETA_S = 300.0  # of the speed that the remaining time follows from; samples are kept as long


class Sample(NamedTuple):
    """Running totals at one moment; a difference of two samples has the totals of the time in between."""

    at: float  # seconds on the monotonic clock
    rows: float = 0  # rows of the source in finished blocks
    tokens: float = 0  # tokens that the model read
    share: float = 0.0  # share of the plan's source bytes in finished blocks
    model_s: float = 0.0  # seconds of the calls of the model
    encoder_s: float = 0.0  # seconds that encoders were there for

    def since(self, earlier: "Sample") -> "Sample":
        """Return the totals of the time after an earlier sample."""
        return Sample(*(now - before for now, before in zip(self, earlier, strict=True)))


class Progress:
    """Progress of a plan. Use as a context manager."""

    def __init__(
        self,
        wave_shares: Sequence[float],
        done: int,
        activity: Callable[[], PoolActivity],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wave_shares, self._committed = wave_shares, done
        self._activity, self._clock = activity, clock
        self._open: dict[int, float] = {}  # wave that is not committed -> its share that is finished
        self._rows = self._tokens = 0
        self._share = self._model_s = self._encoder_s = 0.0  # of the blocks of this run
        self._sampled = self._reported = clock()
        self._first = Sample(self._sampled)
        self._samples = deque([self._first])
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)
        self._on_terminal = sys.stderr.isatty()
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
        self._bar = Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=not self._on_terminal)
        self._task = self._bar.add_task("encode", total=1.0)

    def __enter__(self) -> "Progress":
        self._bar.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._bar.stop()

    def start_wave(self, wave: int, reused: float) -> None:
        """Add an open wave, or another attempt at it."""
        with self._lock:
            self._open[wave] = reused

    def drop(self, wave: int) -> None:
        """Forget the blocks of this and of later waves, which are opened again."""
        with self._lock:
            self._open = {number: share for number, share in self._open.items() if number < wave}

    def block(self, wave: int, share: float, result: BlockResult) -> None:
        """Add a finished block."""
        with self._lock:
            self._open[wave] = self._open.get(wave, 0.0) + share
            self._share += share * self._wave_shares[wave]
            self._rows += sum(cell.counts.rows_in for cell in result.cells if not cell.reused)
            self._tokens += result.counts.tokens
            self._model_s += result.model_seconds

    def committed(self, wave: int, documents: int, quarantined: int, commit_s: float) -> None:
        """Log a committed wave."""
        with self._lock:
            self._committed = wave + 1
            self._open.pop(wave, None)
        fields = {
            "wave": wave + 1,
            "of": len(self._wave_shares),
            "documents": documents,
            "quarantined": quarantined,
            "commit_s": round(commit_s, 3),
            "eta_s": self.facts()["eta_s"],
        }
        log.info("wave committed", extra={"fields": fields})

    @property
    def share_done(self) -> float:
        """Share of the plan's source bytes that is finished, in committed and in open waves."""
        with self._lock:
            finished = sum(self._wave_shares[wave] * min(share, 1.0) for wave, share in self._open.items())
            return float(min(sum(self._wave_shares[: self._committed]) + finished, 1.0))

    def sample(self) -> None:
        """Take a sample of the totals; log a line if the last one is 30 s old."""
        with self._lock:
            now = self._clock()
            self._encoder_s += self._activity().ready * (now - self._sampled)
            self._sampled = now
            self._samples.append(Sample(now, self._rows, self._tokens, self._share, self._model_s, self._encoder_s))
            while self._samples[1].at <= now - _ETA_S:
                self._samples.popleft()
        if self._on_terminal:
            self._show(self.facts())
        elif now >= self._reported + _LINE_S:
            self._reported = now
            log.info("encode progress", extra={"fields": self.facts()})

    def facts(self) -> dict[str, Any]:
        """Return what a progress line has.

        ``share`` of the source bytes that is done, ``eta_s`` (None before the first block), ``rows_per_s`` and
        ``tokens_per_s`` of the last minute and ``..._run`` of the run, ``busy_share`` of the encoders in the last five
        minutes, ``encoders`` that run, ``starting`` ones, the ``wave`` that is next to commit, and ``waits_for``.
        """
        with self._lock:
            minute, minutes, run = self._last(_RATE_S), self._last(_ETA_S), self._samples[-1].since(self._first)
            share, activity = self.share_done, self._activity()
            speed = next((one.share / one.at for one in (minutes, run) if one.at > 0 and one.share > 0), None)
            return {
                "share": round(share, 4),
                "eta_s": None if speed is None else round((1.0 - share) / speed),
                "rows_per_s": _rate(minute.rows, minute.at),
                "rows_per_s_run": _rate(run.rows, run.at),
                "tokens_per_s": _rate(minute.tokens, minute.at),
                "tokens_per_s_run": _rate(run.tokens, run.at),
                "busy_share": round(min(minutes.model_s / minutes.encoder_s, 1.0), 3) if minutes.encoder_s else 0.0,
                "encoders": activity.ready,
                "starting": activity.starting,
                "wave": min(self._committed + 1, len(self._wave_shares)),
                "of": len(self._wave_shares),
                "waits_for": self._waits_for(activity),
            }

    def _last(self, seconds: float) -> Sample:
        """Return the totals of the last ``seconds``, at most five minutes; of the whole run if it is shorter."""
        newest = self._samples[-1]
        before = [sample for sample in self._samples if sample.at <= newest.at - seconds]
        return newest.since(before[-1] if before else self._samples[0])

    def _waits_for(self, activity: PoolActivity) -> str:
        encoded = any(share >= 1.0 - 1e-9 for share in self._open.values())
        if not activity.ready:
            return "nodes"
        if activity.encoding:
            return "encoding"
        return "committing" if encoded and not activity.reading else "reading"

    def _show(self, facts: dict[str, Any]) -> None:
        left = "" if facts["eta_s"] is None else f", {_clock_time(facts['eta_s'])} left"
        text = (
            f"wave {facts['wave']}/{facts['of']}, {facts['waits_for']}, {facts['rows_per_s']:,.0f} rows/s, "
            f"{facts['tokens_per_s']:,.0f} tokens/s, {facts['encoders']} encoders {facts['busy_share']:.0%} busy{left}"
        )
        self._bar.update(self._task, completed=facts["share"], description=text)

    def _follow(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self.sample()


def _rate(count: float, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0


def _clock_time(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
