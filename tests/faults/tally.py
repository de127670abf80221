"""Faults of a world, and the count of what they did."""

from collections import Counter
from dataclasses import dataclass, field

from tests.faults.oracle import Findings

__all__ = ["Fault", "Tally"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject.

    Attributes:
        kind: ``kill``, ``enospc``, ``eio``, ``torn``, ``missing``, ``landed``, ``refused``, ``zombie``, ``skew``,
            ``compact``, ``vacuum`` or ``source``.
        where: the phase, or the failing call.
    """

    kind: str
    where: str


@dataclass(slots=True)
class Tally:
    """Results of all worlds.

    Attributes:
        landed: injected faults by ``kind.where``, with the phase they actually hit.
        findings: errors that the oracle found.
        endings: number of attempts by fault and kind of end.
        increments: injected faults that hit an increment.
    """

    landed: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    endings: Counter[str] = field(default_factory=Counter)
    increments: int = 0

    def add(self, other: "Tally") -> None:
        """Add the results of another world."""
        self.landed += other.landed
        self.endings += other.endings
        self.increments += other.increments
        self.findings.add(other.findings)
