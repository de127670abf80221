"""Rates of a run over its last minutes, from samples of running totals."""

from collections import deque
from dataclasses import dataclass

_KEPT_S = 300.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Running totals at one moment; a difference of two samples has the totals of the time in between.

    Attributes:
        at: seconds on the monotonic clock.
        rows: rows of the source in finished blocks.
        tokens: tokens that the model read.
        share: share of the plan's source bytes in finished blocks.
        model_s: seconds of the calls of the model.
        encoder_s: seconds that encoders were there for.
    """

    at: float
    rows: int = 0
    tokens: int = 0
    share: float = 0.0
    model_s: float = 0.0
    encoder_s: float = 0.0

    def __sub__(self, earlier: "Sample") -> "Sample":
        return Sample(
            self.at - earlier.at,
            self.rows - earlier.rows,
            self.tokens - earlier.tokens,
            self.share - earlier.share,
            self.model_s - earlier.model_s,
            self.encoder_s - earlier.encoder_s,
        )


class Rates:
    """Samples of the last five minutes, and the first one."""

    def __init__(self, first: Sample) -> None:
        self._first = self._newest = first
        self._samples = deque([first])

    def add(self, sample: Sample) -> None:
        """Add a sample; its time is not before that of the last one."""
        self._newest = sample
        self._samples.append(sample)
        while len(self._samples) > 1 and self._samples[1].at <= sample.at - _KEPT_S:
            self._samples.popleft()

    def last(self, seconds: float) -> Sample:
        """Return the totals of the last ``seconds``, at most five minutes; of the whole run if it is shorter."""
        start = self._newest.at - seconds
        before = [sample for sample in self._samples if sample.at <= start]
        return self._newest - (before[-1] if before else self._samples[0])

    @property
    def run(self) -> Sample:
        """Totals of the run."""
        return self._newest - self._first
